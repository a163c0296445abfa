//! Tests of the GPT reader and of moving backups.

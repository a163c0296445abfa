//! Tests of surveys.

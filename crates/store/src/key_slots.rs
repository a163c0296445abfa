//! Changes of the key slots of an encrypted store. Each replaces `keys.json` as a whole, under the writer's lock; no data is
//! rewritten.

use platter_encryption::KeyFile;
use platter_image::{Error, Result};

use crate::catalog::Catalog;
use crate::place::StorePlace;
use crate::store::{check_store, take_lock};

impl StorePlace {
    /// Changes the key slots, durable on return. Nothing is changed if `change` fails.
    ///
    /// # Errors
    /// `Refused` when the store is not encrypted; `Transient` when another process writes the store; the errors of `change`; `Io`.
    pub fn change_key_file<T>(&self, change: impl FnOnce(&mut KeyFile) -> Result<T>) -> Result<T> {
        let _lock = take_lock(self)?;
        let not_encrypted =
            || Error::refused(format!("the store in {} is not encrypted", self.dir().display()));
        let mut keys = self.read_key_file()?.ok_or_else(not_encrypted)?;
        check_store(&Catalog::open_reader(self)?, self.read_format()?)?;
        let changed = change(&mut keys)?;
        self.write_key_file(&keys)?;
        Ok(changed)
    }
}

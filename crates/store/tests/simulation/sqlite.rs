//! An SQLite VFS on top of any [`platter_vfs::Vfs`], so that the catalog is on the simulated disk too.
//!
//! It treats files exactly like SQLite's own unix VFS. If a journal may have been created, its first sync also syncs the
//! directory. After removing a journal, the directory is synced when SQLite asks for it. Locks are kept in this process. There is
//! no shared memory: a catalog that needs it cannot be opened here.

#![expect(unsafe_code, reason = "SQLite's VFS interface is C")]

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use platter_vfs::{OpenMode, Vfs, VfsFile};
use rusqlite::ffi;

/// The locks of a database file, shared by all its connections.
#[derive(Default)]
struct Shared {
    /// Number of holders of SHARED; whether someone holds RESERVED or more; whether someone holds PENDING or EXCLUSIVE.
    readers: u32,
    reserved: bool,
    exclusive: bool,
}

struct World {
    vfs: Arc<dyn Vfs>,
    files: Mutex<HashMap<PathBuf, Arc<Mutex<Shared>>>>,
}

struct Handle {
    world: &'static World,
    file: Box<dyn VfsFile>,
    path: PathBuf,
    shared: Arc<Mutex<Shared>>,
    level: c_int,
    /// Whether this handle holds RESERVED. A handle that rolls back an unfinished commit goes from SHARED to EXCLUSIVE directly.
    reserved: bool,
    sync_dir: bool,
    delete_on_close: bool,
}

#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    handle: *mut Handle,
}

/// Registers a VFS on top of `vfs` and returns its name. It stays registered until the process ends.
pub(crate) fn register(vfs: Arc<dyn Vfs>) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("platter-simulation-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let c_name = CString::new(name.clone()).unwrap();
    let world = Box::leak(Box::new(World { vfs, files: Mutex::default() }));
    // SAFETY: the first call initialises SQLite; everything registered is leaked, so it outlives every connection.
    unsafe {
        let base = ffi::sqlite3_vfs_find(ptr::null());
        assert!(!base.is_null());
        let mut ours = ptr::read(base);
        ours.szOsFile = size_of::<File>() as c_int;
        ours.pNext = ptr::null_mut();
        ours.zName = c_name.into_raw();
        ours.pAppData = ptr::from_mut(world).cast();
        ours.xOpen = Some(open);
        ours.xDelete = Some(delete);
        ours.xAccess = Some(access);
        ours.xFullPathname = Some(full_pathname);
        ours.iVersion = 2;
        let code = ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 0);
        assert_eq!(code, ffi::SQLITE_OK);
    }
    name
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

// SAFETY of all functions below: SQLite passes only pointers that `register` and `open` gave it, and calls for one file
// come from one thread at a time.

unsafe fn world(vfs: *mut ffi::sqlite3_vfs) -> &'static World {
    // SAFETY: `register` put a leaked World there.
    unsafe { &*(*vfs).pAppData.cast::<World>() }
}

unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Handle {
    // SAFETY: `open` stored a Handle, `close` removes it; SQLite calls nothing before or after.
    unsafe { &mut *(*file.cast::<File>()).handle }
}

unsafe fn path<'a>(name: *const c_char) -> &'a Path {
    // SAFETY: SQLite's file names end in a zero byte.
    Path::new(unsafe { CStr::from_ptr(name) }.to_str().unwrap())
}

fn code<T>(result: std::io::Result<T>, failed: c_int) -> c_int {
    match result {
        Ok(_) => ffi::SQLITE_OK,
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => ffi::SQLITE_FULL,
        Err(_) => failed,
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: see above. A database without a name would be temporary; the catalog never uses one.
    unsafe {
        (*file).pMethods = ptr::null();
        if name.is_null() {
            return ffi::SQLITE_CANTOPEN;
        }
        let (world, path) = (world(vfs), path(name));
        let mode = if flags & ffi::SQLITE_OPEN_CREATE != 0 {
            OpenMode::Create
        } else if flags & ffi::SQLITE_OPEN_READONLY != 0 {
            OpenMode::Read
        } else {
            OpenMode::Write
        };
        let Ok(opened) = world.vfs.open(path, mode) else { return ffi::SQLITE_CANTOPEN };
        let is_journal = flags & ffi::SQLITE_OPEN_MAIN_JOURNAL != 0;
        let shared = world.files.lock().entry(path.to_path_buf()).or_default().clone();
        let handle = Handle {
            world,
            file: opened,
            path: path.to_path_buf(),
            shared,
            level: ffi::SQLITE_LOCK_NONE,
            reserved: false,
            sync_dir: is_journal && flags & ffi::SQLITE_OPEN_CREATE != 0,
            delete_on_close: flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0,
        };
        (*file.cast::<File>()).handle = Box::into_raw(Box::new(handle));
        (*file).pMethods = &raw const METHODS;
        if !out_flags.is_null() {
            *out_flags = flags;
        }
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: see above.
    unsafe {
        unlock(file, ffi::SQLITE_LOCK_NONE);
        let handle = Box::from_raw((*file.cast::<File>()).handle);
        (*file).pMethods = ptr::null();
        if handle.delete_on_close {
            let _ = handle.world.vfs.remove(&handle.path);
        }
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: see above.
    let (world, path) = unsafe { (world(vfs), path(name)) };
    match world.vfs.remove(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => return ffi::SQLITE_IOERR_DELETE,
        Ok(()) => {}
    }
    if sync_dir == 0 {
        return ffi::SQLITE_OK;
    }
    code(world.vfs.sync_dir(path.parent().unwrap()), ffi::SQLITE_IOERR_DIR_FSYNC)
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: see above.
    let (vfs, path) = unsafe { (&world(vfs).vfs, path(name)) };
    // As in SQLite's unix VFS, an empty file counts as missing.
    let is_there = vfs.exists(path).and_then(|exists| {
        if exists { vfs.open(path, OpenMode::Read)?.length().map(|length| length > 0) } else { Ok(false) }
    });
    let Ok(is_there) = is_there else { return ffi::SQLITE_IOERR_ACCESS };
    // SAFETY: SQLite expects the answer there.
    unsafe { *out = c_int::from(is_there) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    length: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: `out` has room for `length` bytes.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if bytes.len() > length as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: `out` has room for `count` bytes.
    let (handle, buffer) =
        unsafe { (handle(file), std::slice::from_raw_parts_mut(out.cast::<u8>(), count as usize)) };
    let mut done = 0;
    while done < buffer.len() {
        match handle.file.read_at(&mut buffer[done..], offset as u64 + done as u64) {
            Ok(0) => {
                buffer[done..].fill(0);
                return ffi::SQLITE_IOERR_SHORT_READ;
            }
            Ok(more) => done += more,
            Err(_) => return ffi::SQLITE_IOERR_READ,
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: `from` has `count` bytes.
    let (handle, bytes) =
        unsafe { (handle(file), std::slice::from_raw_parts(from.cast::<u8>(), count as usize)) };
    code(handle.file.write_all_at(bytes, offset as u64), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: see above.
    code(unsafe { handle(file) }.file.set_length(length as u64), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    if let Err(error) = handle.file.sync() {
        return code::<()>(Err(error), ffi::SQLITE_IOERR_FSYNC);
    }
    if std::mem::take(&mut handle.sync_dir) {
        return code(handle.world.vfs.sync_dir(handle.path.parent().unwrap()), ffi::SQLITE_IOERR_DIR_FSYNC);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: see above.
    unsafe {
        match handle(file).file.length() {
            Ok(length) => *out = length as i64,
            Err(_) => return ffi::SQLITE_IOERR_FSTAT,
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, wanted: c_int) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    let mut shared = handle.shared.lock();
    if handle.level >= wanted {
        return ffi::SQLITE_OK;
    }
    let taken = match wanted {
        ffi::SQLITE_LOCK_SHARED => !shared.exclusive,
        ffi::SQLITE_LOCK_RESERVED => !shared.reserved,
        // PENDING keeps new readers out while present ones remain.
        _ if shared.exclusive && handle.level < ffi::SQLITE_LOCK_PENDING => return ffi::SQLITE_BUSY,
        _ => {
            shared.exclusive = true;
            shared.readers == 1
        }
    };
    if !taken {
        // As in SQLite's unix VFS: a failed request for EXCLUSIVE leaves PENDING, released with the other locks.
        if wanted == ffi::SQLITE_LOCK_EXCLUSIVE {
            handle.level = ffi::SQLITE_LOCK_PENDING;
        }
        return ffi::SQLITE_BUSY;
    }
    shared.readers += u32::from(wanted == ffi::SQLITE_LOCK_SHARED);
    if wanted == ffi::SQLITE_LOCK_RESERVED {
        (shared.reserved, handle.reserved) = (true, true);
    }
    handle.level = wanted;
    ffi::SQLITE_OK
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, wanted: c_int) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    let mut shared = handle.shared.lock();
    if handle.level > wanted {
        if handle.level >= ffi::SQLITE_LOCK_PENDING {
            shared.exclusive = false;
        }
        if std::mem::take(&mut handle.reserved) {
            shared.reserved = false;
        }
        shared.readers -= u32::from(wanted == ffi::SQLITE_LOCK_NONE);
        handle.level = wanted;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: see above.
    unsafe { *out = c_int::from(handle(file).shared.lock().reserved) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_file: *mut ffi::sqlite3_file, _op: c_int, _arg: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    // No guarantees: the simulated disk decides what is torn, reordered and lost.
    0
}

/// Forgets all locks, as a restart of the machine does. No connection may be open.
pub(crate) fn restart(name: &str) {
    let c_name = CString::new(name).unwrap();
    // SAFETY: `register` has registered it.
    let world = unsafe { world(ffi::sqlite3_vfs_find(c_name.as_ptr())) };
    world.files.lock().clear();
}

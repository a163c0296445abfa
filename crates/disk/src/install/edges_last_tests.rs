//! Tests of the order in which a target is written: the job is interrupted at every single operation.

use super::*;

const LENGTH: usize = 3 << 20;

/// A disk in memory that fails after a number of operations, and then accepts no more.
struct Failing {
    bytes: Mutex<Vec<u8>>,
    left: Mutex<usize>,
}

impl Failing {
    fn new(left: usize) -> Self {
        Self { bytes: Mutex::new(vec![0xaa; LENGTH]), left: Mutex::new(left) }
    }

    fn act(&self, act: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut left = self.left.lock();
        *left = left.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        act(&mut self.bytes.lock());
        Ok(())
    }
}

impl DiskWrite for Failing {
    fn length(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.act(|bytes| bytes[offset as usize..][..buffer.len()].copy_from_slice(buffer))
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.act(|bytes| bytes[offset as usize..][..length as usize].fill(0))
    }

    fn flush(&self) -> io::Result<()> {
        self.act(|_| {})
    }
}

impl DiskRead for Failing {
    fn length(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.lock().read_exact_at(buffer, offset)
    }
}

/// Writes non-zero bytes in pieces that end anywhere, and a run of zeros.
fn write_all(target: Failing, state: &Arc<TargetState>) -> (Result<()>, Vec<u8>) {
    let edges = match EdgesLast::begin(target, LENGTH as u64, state.clone()) {
        Ok(edges) => edges,
        Err(error) => return (Err(error), Vec::new()),
    };
    let write = || -> Result<()> {
        for start in (0..LENGTH).step_by(700_000) {
            let bytes = vec![start as u8 | 1; 700_000.min(LENGTH - start)];
            edges.write_all_at(&bytes, start as u64).context(|| "writing".to_owned())?;
        }
        edges.write_zeroes(500_000, 1_000_000).context(|| "making zeros".to_owned())?;
        edges.finish(true, Some(&TableChanges::default()), &Extents::new())?;
        Ok(())
    };
    let result = write();
    let bytes = edges.target.bytes.lock().clone();
    (result, bytes)
}

fn wanted() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..LENGTH).map(|at| (at / 700_000 * 700_000) as u8 | 1).collect();
    bytes[500_000..1_500_000].fill(0);
    bytes
}

#[test]
fn the_first_sector_is_written_last() {
    let mut phases = Vec::new();
    for left in 0.. {
        let state = Arc::new(TargetState::new(std::path::Path::new("disk")));
        let (result, found) = write_all(Failing::new(left), &state);
        phases.push(state.phase());
        if result.is_ok() {
            assert!(found == wanted(), "the whole disk must be there");
            break;
        }
        if found.is_empty() {
            continue;
        }
        assert!(found[..PIECE_LENGTH].iter().all(|byte| *byte == 0) || found == wanted(), "after {left}");
        if state.phase() == Phase::Filling {
            let last = LENGTH - EDGE_LENGTH as usize;
            assert!(found[..EDGE_LENGTH as usize].iter().chain(&found[last..]).all(|byte| *byte == 0));
        }
    }
    phases.dedup();
    assert_eq!(phases, [Phase::Filling, Phase::Finishing, Phase::Complete]);
}

#[test]
fn reading_shows_the_final_edges() {
    let state = Arc::new(TargetState::new(std::path::Path::new("disk")));
    let edges = EdgesLast::begin(Failing::new(usize::MAX), LENGTH as u64, state).unwrap();
    edges.write_all_at(&vec![7; LENGTH], 0).unwrap();
    let mut found = vec![0; LENGTH - 200];
    edges.read_exact_at(&mut found, 100).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
    assert_eq!(edges.target.bytes.lock()[0], 0, "the target must not have them yet");
    let mut none = [0; 2];
    assert_eq!(
        edges.read_exact_at(&mut none, LENGTH as u64 - 1).unwrap_err().kind(),
        io::ErrorKind::UnexpectedEof
    );
    assert_eq!(edges.write_all_at(&none, u64::MAX).unwrap_err().kind(), io::ErrorKind::WriteZero);
}

/// Bytes past the disk on a longer target are kept, except for the backup GPT of an earlier disk.
#[test]
fn bytes_after_the_disk_are_kept() {
    for sector in [512, 4096] {
        let disk_length = LENGTH - 700_000;
        let target = Failing::new(usize::MAX);
        target.bytes.lock()[LENGTH - sector..][..8].copy_from_slice(GPT_MAGIC);
        let state = Arc::new(TargetState::new(std::path::Path::new("disk")));
        let edges = EdgesLast::begin(target, disk_length as u64, state).unwrap();
        edges.write_all_at(&vec![7; disk_length], 0).unwrap();
        let end = LENGTH - sector;
        let (disk, past) = (..disk_length, disk_length..end);
        {
            let bytes = edges.target.bytes.lock();
            assert!(
                bytes[LENGTH - EDGE_LENGTH as usize..disk_length].iter().all(|byte| *byte == 0),
                "not yet"
            );
            assert!(bytes[end..].iter().all(|byte| *byte == 0), "the old backup is gone at once");
        }
        edges.finish(true, Some(&TableChanges::default()), &Extents::new()).unwrap();
        let bytes = edges.target.bytes.lock();
        assert!(bytes[disk].iter().all(|byte| *byte == 7));
        assert!(bytes[past].iter().all(|byte| *byte == 0xaa));
    }
}

#[test]
fn a_wrong_byte_in_an_edge_is_detected() {
    for at in [5, LENGTH - 5] {
        let state = Arc::new(TargetState::new(std::path::Path::new("disk")));
        let edges = EdgesLast::begin(Failing::new(usize::MAX), LENGTH as u64, state).unwrap();
        edges.write_all_at(&vec![7; LENGTH], 0).unwrap();
        edges.finish(false, Some(&TableChanges::default()), &Extents::new()).unwrap();
        edges.compare_edges().unwrap();
        edges.target.bytes.lock()[at] = 8;
        let error = edges.compare_edges().unwrap_err();
        assert!(error.to_string().contains(&format!("byte {at} ")), "{error}");
    }
}

#[test]
fn a_disk_shorter_than_two_edges_is_written_completely() {
    for length in [512_u64, EDGE_LENGTH, EDGE_LENGTH + 512] {
        let state = Arc::new(TargetState::new(std::path::Path::new("disk")));
        let target = Failing { bytes: Mutex::new(vec![0; length as usize]), left: Mutex::new(usize::MAX) };
        let edges = EdgesLast::begin(target, length, state).unwrap();
        edges.write_all_at(&vec![9; length as usize], 0).unwrap();
        edges.finish(true, Some(&TableChanges::default()), &Extents::new()).unwrap();
        assert!(edges.target.bytes.lock().iter().all(|byte| *byte == 9));
    }
}

//! The file that is uploaded, and the proof that it arrived.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

use crate::path::streams;

const CHUNK: usize = 64 * 1024;

/// A file to upload.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

impl SourceFile {
    /// Writes `bytes` bytes that follow from `seed`.
    ///
    /// # Errors
    ///
    /// The system's, from writing.
    pub fn generate(path: &Path, bytes: u64, seed: u64) -> io::Result<Self> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(streams::FILE);
        let mut file = BufWriter::new(File::create(path)?);
        let mut chunk = vec![0; CHUNK];
        let mut left = bytes;
        while left > 0 {
            random.fill_bytes(&mut chunk);
            let now = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            file.write_all(chunk.get(..now).unwrap_or(&chunk))?;
            left -= now as u64;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Self::open(path)
    }

    /// Takes a file that is there.
    ///
    /// # Errors
    ///
    /// The system's, from reading.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), bytes: std::fs::metadata(path)?.len(), sha256: sha256(path)? })
    }

    /// The first `bytes` bytes of this file, as a file at `path`.
    ///
    /// # Errors
    ///
    /// The system's, from copying.
    pub fn head(&self, path: &Path, bytes: u64) -> io::Result<Self> {
        io::copy(&mut File::open(&self.path)?.take(bytes), &mut File::create(path)?)?;
        Self::open(path)
    }
}

/// The SHA-256 of a file, in hexadecimal.
///
/// # Errors
///
/// The system's, from reading.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = file.read(&mut chunk)?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        digest.update(bytes);
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_file_of_the_wanted_size() {
        let directory = tempfile::tempdir().unwrap();
        let file =
            |name, bytes, seed| SourceFile::generate(&directory.path().join(name), bytes, seed).unwrap();
        let (one, same, other) = (file("a", 200_001, 1), file("b", 200_001, 1), file("c", 200_001, 2));
        assert_eq!((one.bytes, &one.sha256), (200_001, &same.sha256));
        assert_ne!(one.sha256, other.sha256);
        assert_eq!(one.head(&directory.path().join("d"), 200_001).unwrap().sha256, one.sha256);
        assert_eq!(one.head(&directory.path().join("e"), 10).unwrap().bytes, 10);
    }

    #[test]
    fn the_digest_is_sha_256() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        // FIPS 180-4's example.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&path).unwrap(), expected);
    }
}

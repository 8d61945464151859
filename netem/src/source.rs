//! The transferred file, and the check that it arrived.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

use crate::path::streams;

const CHUNK: usize = 64 * 1024;
/// A generated file has a number in each piece of this size, so the payloads of any two packets
/// differ.
const NUMBERED: usize = 512;

/// A file to transfer.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The path of the file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

/// The contents of a generated file: bytes that follow from a seed, made on demand. Random bytes
/// are drawn once, and all chunks repeat them with other numbers, because those of a whole file
/// would take a tenth of an experiment's time.
#[derive(Clone, Debug)]
pub struct Content {
    seed: u64,
    chunk: Vec<u8>,
    /// The number of the next piece.
    piece: u64,
    taken: usize,
    left: u64,
}

impl Content {
    /// Contents of `bytes` bytes that follow from `seed`.
    pub fn new(bytes: u64, seed: u64) -> Self {
        Self { seed, chunk: Vec::new(), piece: 0, taken: 0, left: bytes }
    }

    /// The next bytes. Empty at the end.
    pub fn peek(&mut self) -> &[u8] {
        if self.taken == self.chunk.len() && self.left > 0 {
            if self.chunk.is_empty() {
                let mut random = ChaCha8Rng::seed_from_u64(self.seed);
                random.set_stream(streams::FILE);
                self.chunk.resize(CHUNK, 0);
                random.fill_bytes(&mut self.chunk);
            }
            for piece in self.chunk.chunks_exact_mut(NUMBERED) {
                let number = self.piece.to_le_bytes();
                piece.iter_mut().zip(number).for_each(|(byte, digit)| *byte = digit);
                self.piece += 1;
            }
            self.chunk.truncate(usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK));
            self.left -= self.chunk.len() as u64;
            self.taken = 0;
        }
        self.chunk.get(self.taken..).unwrap_or_default()
    }

    /// Removes the first `bytes` bytes of [`Content::peek`].
    pub fn take(&mut self, bytes: usize) {
        self.taken = (self.taken + bytes).min(self.chunk.len());
    }

    /// Whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.left == 0 && self.taken == self.chunk.len()
    }

    /// The SHA-256 of the bytes that were not taken, in hexadecimal.
    pub fn sha256(mut self) -> String {
        let mut digest = Sha256::new();
        loop {
            let bytes = self.peek();
            if bytes.is_empty() {
                break;
            }
            digest.update(bytes);
            let length = bytes.len();
            self.take(length);
        }
        hexadecimal(&digest.finalize())
    }
}

/// Bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl SourceFile {
    /// Makes a file of `bytes` bytes that follow from `seed`.
    ///
    /// # Errors
    ///
    /// The error of a write.
    pub fn generate(path: &Path, bytes: u64, seed: u64) -> io::Result<Self> {
        let mut content = Content::new(bytes, seed);
        let mut file = BufWriter::new(File::create(path)?);
        while !content.is_empty() {
            let chunk = content.peek();
            file.write_all(chunk)?;
            let length = chunk.len();
            content.take(length);
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Self::open(path)
    }

    /// Opens an existing file.
    ///
    /// # Errors
    ///
    /// The error of a read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            bytes: std::fs::metadata(path)?.len(),
            sha256: sha256(path)?,
        })
    }

    /// Copies the first `bytes` bytes of this file to a file at `path`.
    pub(crate) fn head(&self, path: &Path, bytes: u64) -> io::Result<Self> {
        io::copy(&mut File::open(&self.path)?.take(bytes), &mut File::create(path)?)?;
        Self::open(path)
    }
}

/// The SHA-256 of a file, in hexadecimal.
///
/// # Errors
///
/// The error of a read.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = file.read(&mut chunk)?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        digest.update(bytes);
    }
    Ok(hexadecimal(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_gives_one_file_of_the_wanted_size() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name, bytes, seed| {
            SourceFile::generate(&directory.path().join(name), bytes, seed).unwrap()
        };
        let (one, same, other) =
            (file("a", 200_001, 1), file("b", 200_001, 1), file("c", 200_001, 2));
        assert_eq!((one.bytes, &one.sha256), (200_001, &same.sha256));
        assert_ne!(one.sha256, other.sha256);
        assert_eq!(one.head(&directory.path().join("d"), 200_001).unwrap().sha256, one.sha256);
        assert_eq!(one.head(&directory.path().join("e"), 10).unwrap().bytes, 10);
    }

    #[test]
    fn generated_contents_equal_those_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        for bytes in [1, 65_535, 65_536, 200_001] {
            let file = SourceFile::generate(&path, bytes, 3).unwrap();
            assert_eq!(Content::new(bytes, 3).sha256(), file.sha256);
            let (mut content, mut all) = (Content::new(bytes, 3), Vec::new());
            while !content.is_empty() {
                let some = content.peek().iter().take(1000).copied().collect::<Vec<_>>();
                content.take(some.len());
                all.extend(some);
            }
            assert_eq!(all, std::fs::read(&path).unwrap());
            let pieces: HashSet<_> = all.chunks(NUMBERED).collect();
            assert_eq!(pieces.len(), all.len().div_ceil(NUMBERED));
        }
    }

    #[test]
    fn the_digest_is_sha_256() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        // The example of FIPS 180-4.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&path).unwrap(), expected);
    }
}

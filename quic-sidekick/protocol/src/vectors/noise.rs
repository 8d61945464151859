//! An independent implementation of the two Noise patterns, from its specification (revision 34,
//! sections 5 and 7.5), on primitives alone. The library does not expose a handshake's keys.

use crate::SecretKey;
use crate::wire::Pattern;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Hash};

type Key = [u8; 32];

fn hash() -> Box<dyn Hash> {
    DefaultResolver.resolve_hash(&HashChoice::Blake2s).unwrap()
}

fn hash_of(parts: &[&[u8]]) -> Key {
    let (mut hash, mut out) = (hash(), [0; 32]);
    parts.iter().for_each(|part| hash.input(part));
    hash.result(&mut out);
    out
}

fn hmac(key: &Key, parts: &[&[u8]]) -> Key {
    let mut out = [0; 32];
    hash().hmac(key, &parts.concat(), &mut out);
    out
}

fn hkdf(chaining_key: &Key, input: &[u8]) -> (Key, Key) {
    let secret = hmac(chaining_key, &[input]);
    let first = hmac(&secret, &[&[1]]);
    (first, hmac(&secret, &[&first, &[2]]))
}

fn cipher(key: &Key) -> Box<dyn Cipher> {
    let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).unwrap();
    cipher.set(key);
    cipher
}

/// Encrypts, and appends the tag.
pub(super) fn encrypt(key: &Key, nonce: u64, associated: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; plain.len() + 16];
    let len = cipher(key).encrypt(nonce, associated, plain, &mut out);
    assert_eq!(len, out.len());
    out
}

fn dh(secret: &Key, public: &Key) -> Key {
    let (mut dh, mut out) = (DefaultResolver.resolve_dh(&DHChoice::Curve25519).unwrap(), [0; 32]);
    dh.set(secret);
    dh.dh(public, &mut out).unwrap();
    out
}

/// The `SymmetricState`, whose cipher state encrypts at most one message per key.
struct State {
    key: Option<Key>,
    chaining_key: Key,
    hash: Key,
    uses: u64,
}

impl State {
    /// Both protocol names are longer than a hash, so they are hashed.
    fn new(name: &str) -> Self {
        let hash = hash_of(&[name.as_bytes()]);
        Self { key: None, chaining_key: hash, hash, uses: 0 }
    }

    fn mix_hash(&mut self, data: &[u8]) {
        self.hash = hash_of(&[&self.hash, data]);
    }

    fn mix_key(&mut self, input: &Key) {
        let (chaining_key, key) = hkdf(&self.chaining_key, input);
        (self.chaining_key, self.key, self.uses) = (chaining_key, Some(key), 0);
    }

    fn encrypt_and_hash(&mut self, plain: &[u8]) -> Vec<u8> {
        let out = self
            .key
            .map_or_else(|| plain.to_vec(), |key| encrypt(&key, self.uses, &self.hash, plain));
        self.uses += 1;
        self.mix_hash(&out);
        out
    }
}

/// The inputs of a handshake.
pub(super) struct Input<'a> {
    pub(super) pattern: Pattern,
    pub(super) name: &'a str,
    pub(super) prologue: &'a [u8],
    pub(super) proxy: &'a SecretKey,
    pub(super) sender_ephemeral: SecretKey,
    pub(super) proxy_ephemeral: SecretKey,
    pub(super) payloads: [&'a [u8]; 2],
}

/// The outputs of a handshake.
pub(super) struct Output {
    pub(super) messages: [Vec<u8>; 2],
    pub(super) hash: Key,
    /// The sender's sealing key, then the proxy's.
    pub(super) keys: [Key; 2],
}

pub(super) fn run(input: &Input<'_>) -> Output {
    let (e, re) = (&input.sender_ephemeral, &input.proxy_ephemeral);
    let pinned = input.pattern == Pattern::Pinned;
    let mut state = State::new(input.name);
    state.mix_hash(input.prologue);
    if pinned {
        state.mix_hash(&input.proxy.public().0);
    }
    let mut first = e.public().0.to_vec();
    state.mix_hash(&e.public().0);
    if pinned {
        state.mix_key(&dh(&e.0, &input.proxy.public().0));
    }
    first.extend(state.encrypt_and_hash(input.payloads[0]));

    let mut second = re.public().0.to_vec();
    state.mix_hash(&re.public().0);
    state.mix_key(&dh(&re.0, &e.public().0));
    if !pinned {
        second.extend(state.encrypt_and_hash(&input.proxy.public().0));
        state.mix_key(&dh(&input.proxy.0, &e.public().0));
    }
    second.extend(state.encrypt_and_hash(input.payloads[1]));
    let keys = hkdf(&state.chaining_key, &[]);
    Output { messages: [first, second], hash: state.hash, keys: keys.into() }
}

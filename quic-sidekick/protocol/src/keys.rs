//! Keys: the Noise handshake, and the seal on every message after it (SPEC.md, sections 4.4 and
//! 4.5).
//!
//! [`crate::Sender`] and [`crate::Observer`] use this module internally. The feature `testing`
//! makes it public, for the tests of programs that speak the protocol.

mod aead;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use thiserror::Error;

use crate::clock::Numbers;
use crate::identify::Flow;
use crate::terms::Terms;
use crate::wire::{
    Accept, BufferTooShort, Datagram, KEY_LEN, MAX_MESSAGE_LEN, Message, ParseError, Pattern,
    SessionNumber, TAG_LEN, hello_payload, parse_hello_payload,
};
use aead::{Aead, SessionCipher};

/// A proxy's static public key, which a sender can pin. Its text is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A proxy's static secret key: 32 random bytes. `Debug` hides them.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(pub [u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// The text is not a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected 64 hexadecimal digits, as the proxy shows its public key")]
pub struct ParseKeyError;

impl FromStr for PublicKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let (digits, []) = text.as_bytes().as_chunks::<2>() else { return Err(ParseKeyError) };
        let mut key = [0; 32];
        if digits.len() != key.len() {
            return Err(ParseKeyError);
        }
        let value =
            |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        for (byte, [high, low]) in key.iter_mut().zip(digits) {
            *byte = value(*high).ok_or(ParseKeyError)? << 4 | value(*low).ok_or(ParseKeyError)?;
        }
        Ok(Self(key))
    }
}

impl SecretKey {
    /// The corresponding public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
            dh.set(&self.0);
            key.iter_mut().zip(dh.pubkey()).for_each(|(to, from)| *to = *from);
        }
        PublicKey(key)
    }
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The message belongs to another key or flow, or was altered on the way.
    #[error("the handshake failed")]
    Failed,
    /// The message is authentic, but its contents are not valid.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
}

impl From<snow::Error> for HandshakeError {
    fn from(_: snow::Error) -> Self {
        Self::Failed
    }
}

impl From<BufferTooShort> for HandshakeError {
    fn from(_: BufferTooShort) -> Self {
        Self::Failed
    }
}

/// The longest handshake message.
const MAX_HANDSHAKE: usize = 128;

/// A handshake message, for a HELLO or an ACCEPT.
#[derive(Clone, Copy)]
pub struct HandshakeMessage {
    bytes: [u8; MAX_HANDSHAKE],
    len: usize,
}

impl HandshakeMessage {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for HandshakeMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandshakeMessage({} bytes)", self.len)
    }
}

/// The primitives of `snow`, with random numbers from a seed, so that a simulation that repeats its
/// seed repeats its keys.
struct Resolver([u8; 32]);

struct Ephemeral(Numbers);

impl Random for Ephemeral {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill(dest);
        Ok(())
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Ephemeral(Numbers::new(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

fn params(pattern: Pattern) -> Result<NoiseParams, HandshakeError> {
    let name = match pattern {
        Pattern::Unpinned => "Noise_NX_25519_ChaChaPoly_BLAKE2s",
        Pattern::Pinned => "Noise_NK_25519_ChaChaPoly_BLAKE2s",
    };
    Ok(name.parse()?)
}

fn builder<'a>(pattern: Pattern, seed: [u8; 32]) -> Result<Builder<'a>, HandshakeError> {
    let resolver: BoxedCryptoResolver = Box::new(Resolver(seed));
    Ok(Builder::with_resolver(params(pattern)?, resolver))
}

/// The sender's side of a handshake.
pub struct Initiator(Box<HandshakeState>);

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator(..)")
    }
}

impl Initiator {
    /// Begins a handshake and returns its first message. `pinned` is the key that the proxy must
    /// hold, or `None` for any. `session` and `flow` are those of the HELLO. `seed` makes the
    /// ephemeral key and must be random.
    ///
    /// # Errors
    /// [`HandshakeError`] if the pinned key is not a valid point.
    pub fn begin(
        pinned: Option<&PublicKey>,
        session: SessionNumber,
        flow: &Flow,
        terms: &Terms,
        seed: [u8; 32],
    ) -> Result<(Self, HandshakeMessage), HandshakeError> {
        let prologue = prologue(session, flow);
        let mut builder = builder(pattern(pinned), seed)?.prologue(&prologue)?;
        if let Some(key) = pinned {
            builder = builder.remote_public_key(&key.0)?;
        }
        let mut state = builder.build_initiator()?;
        let mut bytes = [0; MAX_HANDSHAKE];
        let len = state.write_message(&hello_payload(terms)?, &mut bytes)?;
        Ok((Self(Box::new(state)), HandshakeMessage { bytes, len }))
    }

    /// Reads the second message. A forged one changes nothing.
    ///
    /// # Errors
    /// [`HandshakeError`] states why the message is rejected.
    pub fn read(&mut self, message: &[u8]) -> Result<Accept, HandshakeError> {
        let mut payload = [0; MAX_HANDSHAKE];
        let len = self.0.read_message(message, &mut payload)?;
        Ok(Accept::parse(payload.get(..len).unwrap_or_default())?)
    }

    /// The session's keys and the proxy's static key, after [`read`](Self::read) succeeded.
    ///
    /// # Errors
    /// [`HandshakeError`] if it has not.
    pub fn finish(self) -> Result<(Seal, PublicKey), HandshakeError> {
        let key = self.0.get_remote_static().and_then(|key| key.try_into().ok());
        let key = PublicKey(key.ok_or(HandshakeError::Failed)?);
        Ok((Seal::of(*self.0)?, key))
    }
}

/// The pattern of a sender that pins `pinned`.
pub(crate) fn pattern(pinned: Option<&PublicKey>) -> Pattern {
    if pinned.is_some() { Pattern::Pinned } else { Pattern::Unpinned }
}

/// The proxy's side of a handshake.
pub struct Responder(HandshakeState);

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder(..)")
    }
}

impl Responder {
    /// Reads the first message, and returns the terms that it requests. `session` and `flow` are
    /// those of the HELLO. `seed` makes the ephemeral key and must be random.
    ///
    /// # Errors
    /// [`HandshakeError`] states why the message is rejected.
    pub fn read(
        pattern: Pattern,
        key: &SecretKey,
        session: SessionNumber,
        flow: &Flow,
        seed: [u8; 32],
        message: &[u8],
    ) -> Result<(Self, Terms), HandshakeError> {
        let prologue = prologue(session, flow);
        let builder = builder(pattern, seed)?.prologue(&prologue)?.local_private_key(&key.0)?;
        let mut state = builder.build_responder()?;
        let mut payload = [0; MAX_HANDSHAKE];
        let len = state.read_message(message, &mut payload)?;
        let terms = parse_hello_payload(payload.get(..len).unwrap_or_default())?;
        Ok((Self(state), terms))
    }

    /// Returns the session's keys and the second message.
    ///
    /// # Errors
    /// [`HandshakeError`] if the sender's ephemeral key is not a valid point.
    pub fn finish(mut self, accept: &Accept) -> Result<(Seal, HandshakeMessage), HandshakeError> {
        let mut bytes = [0; MAX_HANDSHAKE];
        let len = self.0.write_message(&accept.emit()?, &mut bytes)?;
        Ok((Seal::of(self.0)?, HandshakeMessage { bytes, len }))
    }
}

/// Why a sealed datagram is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its sequence number was received before, or is older than the window.
    #[error("a replay")]
    Replay,
    /// The peer of this session did not seal it.
    #[error("not authentic")]
    Forged,
    /// It is authentic, but holds no valid message.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
}

/// A buffer for a decrypted message. Keep one and reuse it: it allocates until it has held the
/// longest message.
#[derive(Clone, Default)]
pub struct Plain(Vec<u8>);

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(..)")
    }
}

/// A way between a session's two sides. Each has half of the sequence numbers and a window of its
/// own, because one may be much slower than the other (SPEC.md, section 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// The one that the flow takes, too.
    #[default]
    First,
    /// Another one.
    Second,
}

impl Link {
    /// The first sequence number of the second link.
    const SECOND_FROM: u32 = 1 << 31;

    /// The link to which a sequence number belongs.
    #[must_use]
    pub fn of(sequence: u32) -> Self {
        if sequence < Self::SECOND_FROM { Self::First } else { Self::Second }
    }
}

/// What one link used.
#[derive(Clone, Copy, Debug)]
struct Used {
    /// The next sequence number; `None` once all are used.
    next: Option<u32>,
    seen: Window,
}

impl Used {
    fn from(next: u32) -> Self {
        Self { next: Some(next), seen: Window::default() }
    }
}

/// The keys of a session, one for each direction, and the sequence numbers used.
pub struct Seal {
    sending: SessionCipher,
    receiving: SessionCipher,
    first: Used,
    second: Used,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("next", &self.first.next).finish_non_exhaustive()
    }
}

impl Seal {
    /// The seal of a finished handshake.
    fn of(mut handshake: HandshakeState) -> Result<Self, HandshakeError> {
        if !handshake.is_handshake_finished() {
            return Err(HandshakeError::Failed);
        }
        let (initiator, responder) = handshake.dangerously_get_raw_split();
        Ok(if handshake.is_initiator() {
            Self::from_keys(&initiator, &responder)
        } else {
            Self::from_keys(&responder, &initiator)
        })
    }

    /// A seal with these keys, for a session without a handshake.
    pub(crate) fn from_keys(sending: &[u8; KEY_LEN], receiving: &[u8; KEY_LEN]) -> Self {
        let (sending, receiving) = (SessionCipher::new(sending), SessionCipher::new(receiving));
        let (first, second) = (Used::from(0), Used::from(Link::SECOND_FROM));
        Self { sending, receiving, first, second }
    }

    fn used(&mut self, link: Link) -> &mut Used {
        match link {
            Link::First => &mut self.first,
            Link::Second => &mut self.second,
        }
    }

    /// Writes a datagram for `session` with the sealed `message` to `out`, and returns its length.
    /// Returns `None` if `out` is too short, or all sequence numbers of `link` are used.
    pub fn seal(
        &mut self,
        link: Link,
        session: SessionNumber,
        message: &Message<'_>,
        out: &mut [u8],
    ) -> Option<usize> {
        let sequence = self.used(link).next?;
        let header = Datagram::Sealed { session, sequence, ciphertext: &[] }.emit(out).ok()?;
        let room = out.get_mut(header..)?;
        let len = message.emit(room).ok().filter(|len| *len <= MAX_MESSAGE_LEN)?;
        let (plain, rest) = room.split_at_mut_checked(len)?;
        let tag = rest.first_chunk_mut::<TAG_LEN>()?;
        *tag = self.sending.seal(sequence, plain)?;
        self.used(link).next = sequence.checked_add(1).filter(|next| Link::of(*next) == link);
        Some(header + len + TAG_LEN)
    }

    /// Skips sequence numbers.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.used(Link::of(next)).next = Some(next);
    }

    /// Whether all sequence numbers of the first link are used.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.first.next.is_none()
    }

    /// Opens a sealed message. A forged one uses no sequence number.
    ///
    /// # Errors
    /// [`OpenError`] states why the datagram is rejected.
    pub fn open<'a>(
        &mut self,
        sequence: u32,
        ciphertext: &[u8],
        plain: &'a mut Plain,
    ) -> Result<Message<'a>, OpenError> {
        let link = Link::of(sequence);
        if !self.used(link).seen.is_new(sequence) {
            return Err(OpenError::Replay);
        }
        let (body, tag) = ciphertext.split_last_chunk::<TAG_LEN>().ok_or(OpenError::Forged)?;
        if body.len() > MAX_MESSAGE_LEN {
            return Err(OpenError::Forged);
        }
        plain.0.clear();
        plain.0.extend_from_slice(body);
        if !self.receiving.open(sequence, &mut plain.0, tag) {
            return Err(OpenError::Forged);
        }
        self.used(link).seen.record(sequence);
        Ok(Message::parse(&plain.0)?)
    }
}

#[cfg(test)]
mod tests;

/// The newest sequence number received, and which of the 64 up to it were received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    newest: u32,
    /// Bit i stands for `newest - i`. If it is 0, no number was received.
    seen: u64,
}

impl Window {
    /// Whether `number` was not received, and is within the window or newer.
    pub(crate) fn is_new(&self, number: u32) -> bool {
        match self.newest.checked_sub(number) {
            _ if self.seen == 0 => true,
            None => true,
            Some(age) => age < u64::BITS && self.seen >> age & 1 == 0,
        }
    }

    /// Records a number that [`Self::is_new`].
    pub(crate) fn record(&mut self, number: u32) {
        if self.seen == 0 || number > self.newest {
            let ahead = number - self.newest;
            self.seen = if ahead < u64::BITS { self.seen << ahead } else { 0 } | 1;
            self.newest = number;
            return;
        }
        let age = self.newest - number;
        if age < u64::BITS {
            self.seen |= 1 << age;
        }
    }
}

/// The name of the protocol and its version.
const NAME: &[u8; 11] = b"Sidekick v1";
/// An address and a port.
const END_LEN: usize = 18;
/// Bytes of the prologue.
const PROLOGUE_LEN: usize = NAME.len() + 4 + 2 * END_LEN;

/// The Noise prologue (SPEC.md, section 4.4): the fields of a HELLO outside its handshake message.
/// The handshake fails if an attacker alters them.
pub(crate) fn prologue(session: SessionNumber, flow: &Flow) -> [u8; PROLOGUE_LEN] {
    let mut prologue = [0; PROLOGUE_LEN];
    let parts = [
        NAME.as_slice(),
        &session.0.to_be_bytes(),
        &ip(flow.source),
        &flow.source.port().to_be_bytes(),
        &ip(flow.destination),
        &flow.destination.port().to_be_bytes(),
    ];
    let bytes = parts.iter().copied().flatten();
    prologue.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    prologue
}

/// The address, an IPv4 one as IPv4-mapped IPv6.
fn ip(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

//! Random values.

use std::io;

use quiche::ConnectionId;

/// A connection ID of this length.
pub(crate) fn connection_id(length: u8) -> io::Result<ConnectionId<'static>> {
    let mut id = vec![0; length.into()];
    fill(&mut id)?;
    Ok(ConnectionId::from_vec(id))
}

/// A stateless reset token (RFC 9000, section 10.3).
pub(crate) fn reset_token() -> io::Result<u128> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| io::Error::other(format!("the system provides no randomness: {error}")))
}

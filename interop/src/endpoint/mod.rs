//! What a raw quiche loop needs around its connections, at either end.

pub(crate) mod digest;
pub(crate) mod outbox;
pub(crate) mod sockets;

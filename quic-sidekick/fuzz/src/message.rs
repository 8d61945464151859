//! Any bytes are a message, which then is written as the same bytes, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidekick_protocol::MAX_MESSAGE_LEN;
use sidekick_protocol::wire::Message;

fuzz_target!(|data: &[u8]| {
    let Ok(message) = Message::parse(data) else { return };
    let mut buffer = [0; MAX_MESSAGE_LEN];
    let written = message.emit(&mut buffer).ok().and_then(|length| buffer.get(..length));
    assert_eq!(written, Some(data), "{message:?}");
});

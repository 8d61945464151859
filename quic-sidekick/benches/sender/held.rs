//! The memory that a sender holds for a connection: all of quiche's and of the plugin's, but
//! BoringSSL's.

use crate::allocator::peak_of;
use crate::help::{Certificate, Direction, Fault, Helped, Link, NoHelp};
use crate::{hooked, stock};
use quic_sidekick::{Driver, Mode, quiche};

/// The mode whose sender holds most, and its congestion controller.
const MODE: Mode = Mode::Auto;
const CONTROLLER: &str = "bbr2_gcongestion";

/// Rates in Mbit/s, each with its link. The fast one loses nothing: stock quiche would be slower
/// there, and so hold less itself.
pub(crate) const LINKS: [(u32, Link); 2] =
    [link(10, 8 << 20, Some(100)), link(1000, 64 << 20, None)];

/// A link with a queue of a round trip. The application writes two round trips ahead: otherwise
/// most of what quiche holds would be data that wait.
const fn link(rate: u32, bytes: usize, loses_every: Option<u64>) -> (u32, Link) {
    let round_trip = 6500 * rate;
    let link = Link {
        direction: Direction::Up,
        bytes,
        ahead: 2 * round_trip as usize,
        ns_per_byte: 8000 / rate as u64,
        queue_bytes: round_trip,
        loses_every,
    };
    (rate, link)
}

/// The most bytes that a sender holds at a time for a connection with help.
pub(crate) fn with_help(link: Link, fault: Fault) -> usize {
    let certificate = Certificate::new();
    let (cert, key) = certificate.files();
    let (helped, peak) = peak_of(|| {
        let mut helped = Helped::new(MODE, None).with(fault);
        hooked::transfer::transfer(link, CONTROLLER, (&cert, &key), &mut helped);
        helped
    });
    let status = helped.status();
    // Otherwise the figure would be one without help.
    assert!(status.stats.quacks_received > 10, "{status:?}");
    peak.cast_unsigned() + size_of::<quiche::Connection>() + size_of::<Driver>()
}

/// The most bytes that stock quiche holds at a time for a connection.
pub(crate) fn by_stock_quiche(link: Link) -> usize {
    let certificate = Certificate::new();
    let (cert, key) = certificate.files();
    let files = (cert.as_str(), key.as_str());
    let ((), peak) = peak_of(|| {
        stock::transfer::transfer(link, CONTROLLER, files, &mut NoHelp);
    });
    peak.cast_unsigned() + size_of::<pristine::Connection>()
}

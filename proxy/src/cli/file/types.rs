//! The types of a file's values. Their errors say what to write.

use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::capture::settings::interface_name;
use crate::cli::values::{announced, listen, metrics_or_off};
use crate::monitor::listener::MetricsAddress;
use crate::size::Size;

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number<const LEAST: u64, const MOST: u64>(pub(crate) u64);

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Number<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range<const LEAST: u64, const MOST: u64>;

        impl<const LEAST: u64, const MOST: u64> Visitor<'_> for Range<LEAST, MOST> {
            type Value = Number<LEAST, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {LEAST} to {MOST}")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                u64::try_from(number)
                    .ok()
                    .filter(|number| (LEAST..=MOST).contains(number))
                    .map(Number)
                    .ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
            }
        }
        deserializer.deserialize_i64(Range)
    }
}

/// A number of bytes, as a number or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Size);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;

        impl Visitor<'_> for Amount {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes like \"64M\", \"512K\" or 1000000, up to \"1024G\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Bytes, E> {
                let size = number.to_string().parse();
                size.map(Bytes).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
                let size = text.parse();
                size.map(Bytes).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Amount)
    }
}

/// A value of a list in a file.
pub(crate) trait Listed {
    /// A value as a file has it.
    const EXAMPLE: &'static str;
}

/// Values in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueList<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de> + Listed> Deserialize<'de> for ValueList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Listed> Visitor<'de> for Items<T> {
            type Value = ValueList<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list, like [{}]", T::EXAMPLE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Err(E::custom(format!("a list is needed: write [{text:?}]")))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = items.next_element()? {
                    values.push(value);
                }
                Ok(ValueList(values))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// Reads a value from a text, as the flag of the same name does. `wanted` names what a text should
/// be, for an error about a value of another type.
pub(crate) fn from_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    wanted: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    struct Text<'a, F> {
        wanted: &'a str,
        read: F,
    }

    impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Text<'_, F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.wanted)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            (self.read)(text)
                .map_err(|message| E::custom(format!("invalid value {text:?}: {message}")))
        }
    }
    deserializer.deserialize_str(Text { wanted, read })
}

/// The name of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface(pub(crate) String);

impl Listed for Interface {
    const EXAMPLE: &'static str = "\"eth0\"";
}

impl<'de> Deserialize<'de> for Interface {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a name in quotes, like \"eth0\"", interface_name).map(Self)
    }
}

/// An address and a port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "an address and port in quotes, like \"[::]:5252\"";
        from_text(deserializer, wanted, listen).map(Self)
    }
}

/// An address and a port that the proxy can announce to senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced(pub(crate) SocketAddr);

impl Listed for Announced {
    const EXAMPLE: &'static str = "\"192.0.2.1:5252\"";
}

impl<'de> Deserialize<'de> for Announced {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "an address and port in quotes, like \"192.0.2.1:5252\"";
        from_text(deserializer, wanted, announced).map(Self)
    }
}

/// Where to serve metrics. By default that is `PORT` on this machine alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metrics<const PORT: u16>(pub(crate) MetricsAddress);

impl<'de, const PORT: u16> Deserialize<'de> for Metrics<PORT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let wanted = format!("an address and port in quotes, like \"{default}\", or \"off\"");
        from_text(deserializer, &wanted, metrics_or_off(default)).map(Self)
    }
}

/// The file of the secret key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyFile(pub(crate) PathBuf);

impl<'de> Deserialize<'de> for KeyFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "a file name in quotes, like \"/var/lib/sidekick-proxy/key\"";
        from_text(deserializer, wanted, |text| Ok(text.into())).map(Self)
    }
}

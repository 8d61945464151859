//! Colours: one for each sender, the same in every plot. Colour-blind readers can distinguish them.

/// A colour as red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// As in HTML and SVG.
    pub(crate) fn hex(self) -> String {
        format!("#{:02X}{:02X}{:02X}", self.0, self.1, self.2)
    }

    /// A mixture of two colours: this colour where `share` is 0, `to` where it is 1.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a mixture of two values from 0 to 255 is one too"
    )]
    pub(crate) fn mixed(self, to: Self, share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        let mix = |from: u8, to: u8| {
            (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8
        };
        Self(mix(self.0, to.0), mix(self.1, to.1), mix(self.2, to.2))
    }
}

/// Axes and text. In dark mode, the page inverts this colour.
pub(crate) const INK: Colour = Colour(0, 0, 0);
/// Lines behind the curves. In dark mode, the page dims this colour.
pub(crate) const GRID: Colour = Colour(0xDD, 0xDD, 0xDD);
/// Text on the cells of a heat map, which are light in dark mode, too.
pub(crate) const CELL_INK: Colour = Colour(0x1A, 0x1A, 0x1A);
/// A ratio of one.
pub(crate) const EVEN: Colour = Colour(0xF7, 0xF7, 0xF7);
/// A ratio far above one.
pub(crate) const ABOVE: Colour = Colour(0x56, 0xB4, 0xE9);
/// A ratio far below one.
pub(crate) const BELOW: Colour = Colour(0xE6, 0x9F, 0x00);

// The colours of Okabe and Ito, with three changes: a grey that shows on white and on black, a
// violet, and a brown in place of yellow, which does not show on white.
pub(crate) const GREY: Colour = Colour(0x80, 0x80, 0x80);
pub(crate) const ORANGE: Colour = Colour(0xE6, 0x9F, 0x00);
pub(crate) const SKY: Colour = Colour(0x56, 0xB4, 0xE9);
pub(crate) const GREEN: Colour = Colour(0x00, 0x9E, 0x73);
pub(crate) const BLUE: Colour = Colour(0x00, 0x72, 0xB2);
pub(crate) const VERMILION: Colour = Colour(0xD5, 0x5E, 0x00);
pub(crate) const PURPLE: Colour = Colour(0xCC, 0x79, 0xA7);
pub(crate) const BROWN: Colour = Colour(0x99, 0x4F, 0x00);
pub(crate) const OLIVE: Colour = Colour(0x8A, 0x8A, 0x00);
pub(crate) const VIOLET: Colour = Colour(0x7B, 0x5F, 0xD0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_mix() {
        assert_eq!(Colour(0, 100, 255).mixed(Colour(100, 100, 5), 0.5), Colour(50, 100, 130));
        assert_eq!(ABOVE.mixed(EVEN, 7.0), EVEN);
        assert_eq!(ORANGE.hex(), "#E69F00");
    }
}

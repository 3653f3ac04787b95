//! Layout of text: its width, and whether it is coloured. Colour only repeats information that the words
//! contain.

/// Layout of a text report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Maximum number of columns, at least 40.
    pub width: usize,
    /// Whether to use terminal colours.
    pub colour: bool,
}

impl From<usize> for Look {
    /// Returns a layout with that width, without colour.
    fn from(width: usize) -> Self {
        Self { width, colour: false }
    }
}

/// Kind of text that has its own colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// Headline and headings.
    Heading,
    /// Bar of a measured rate.
    Measured,
    /// Bar of a simulated rate.
    Simulated,
    /// Bar of a given rate.
    Given,
}

impl Look {
    /// Returns `text` between the terminal escape codes for `ink`. The codes take up no columns.
    pub(super) fn paint(self, ink: Ink, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.into();
        }
        // The eight basic colours are readable on any terminal background, because the terminal theme defines
        // them.
        let code = match ink {
            Ink::Heading => "1",
            Ink::Measured => "33",
            Ink::Simulated => "32",
            Ink::Given => "36",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

//! How text is to look: how wide, and in colour or not. Colour repeats what the words say.

/// The look of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns at most; 40 at least.
    pub width: usize,
    /// Whether to use a terminal's colours.
    pub colour: bool,
}

impl From<usize> for Look {
    /// So wide, without colour.
    fn from(width: usize) -> Self {
        Self { width, colour: false }
    }
}

/// What is told apart by colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// Headline and headings.
    Heading,
    /// The bar of what was measured.
    Measured,
    /// The bar of what was simulated.
    Simulated,
    /// The bar of what was given.
    Given,
}

impl Look {
    /// `text` between the terminal's codes for `ink`. It takes up no more columns than before.
    pub(super) fn paint(self, ink: Ink, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.into();
        }
        // The eight basic colours: the terminal's theme makes them readable on its ground.
        let code = match ink {
            Ink::Heading => "1",
            Ink::Measured => "33",
            Ink::Simulated => "32",
            Ink::Given => "36",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

//! Width of text in terminal columns, and wrapping.

use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// Returns the number of columns that a terminal needs for `text`: two for a wide character, none for a
/// combining character or a colour code.
pub fn columns(text: &str) -> usize {
    display_width(text)
}

/// Returns options to wrap text at `width` columns. Lines break only between words and never at a hyphen,
/// because many words with a hyphen are commands, options and names.
pub(super) fn between_words<'a>(width: usize) -> Options<'a> {
    Options::new(width)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
}

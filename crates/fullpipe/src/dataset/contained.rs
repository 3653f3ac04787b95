//! Calls the Parquet reader, which validates its input, but may panic on a damaged file.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static READS: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `read`, or `None` if it panics. Such a panic prints nothing, because the caller reports a
/// damaged file.
pub(super) fn contained<T>(read: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            if !READS.get() {
                hook(info);
            }
        }));
    });
    let before = READS.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    READS.set(before);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_no_result() {
        assert_eq!(contained(|| 7), Some(7));
        assert_eq!(contained(|| -> u8 { panic!("a damaged file") }), None);
        assert!(!READS.get());
    }
}

//! Numbers and directions of the streams of a test.

use crate::params::{Mode, Params};

/// Direction in which data is sent on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client sends, and the server receives.
    Upload,
    /// The server sends, and the client receives.
    Download,
}

/// Returns the number of the stream that is opened at position `position`, counted from 0. The numbers are 1,
/// 3, 4, 5, ...
///
/// The gap after 1 comes from a bug in the first iperf3 version. All later versions have the same gap,
/// because client and server match their results by these numbers.
pub fn id(position: usize) -> u32 {
    let position = u32::try_from(position).unwrap_or(u32::MAX - 2);
    if position == 0 { 1 } else { position + 2 }
}

/// Returns the number and the direction of every stream of a test, in the order in which the client opens the
/// connections. The server identifies streams only by this order, so the client opens them one after another.
pub fn of(params: &Params) -> Vec<(u32, Direction)> {
    let several = |direction| std::iter::repeat_n(direction, params.parallel as usize);
    let directions: Vec<Direction> = match params.mode {
        Mode::Forward => several(Direction::Upload).collect(),
        Mode::Reverse => several(Direction::Download).collect(),
        Mode::Bidirectional => several(Direction::Upload).chain(several(Direction::Download)).collect(),
    };
    directions.into_iter().enumerate().map(|(position, direction)| (id(position), direction)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_skip_the_number_two() {
        let of_mode = |mode, parallel| of(&Params { mode, parallel, ..Params::default() });
        let ids = |mode, parallel| of_mode(mode, parallel).iter().map(|&(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(Mode::Forward, 1), [1]);
        assert_eq!(ids(Mode::Reverse, 4), [1, 3, 4, 5]);
        use Direction::{Download, Upload};
        let both = of_mode(Mode::Bidirectional, 2);
        assert_eq!(both, [(1, Upload), (3, Upload), (4, Download), (5, Download)]);
    }
}

//! Curve of a chart, reduced to few points for a small file, but with all of its peaks.

/// Number of slices of the time axis. A chart is about a thousand pixels wide, so a slice is a few pixels.
const SLICES: usize = 240;

/// Values over time, in SI base units.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Curve {
    /// Times in seconds.
    pub(super) t: Vec<f64>,
    /// Values.
    pub(super) v: Vec<f64>,
}

impl Curve {
    /// Thins `points`, which must be in chronological order: each slice with more than two points keeps only
    /// its minimum and its maximum, which cover the same pixels as all of its points.
    pub(super) fn thinned(points: &[(f64, f64)]) -> Option<Self> {
        let (&(first, _), &(last, _)) = (points.first()?, points.last()?);
        let mut curve = Self::default();
        if points.len() <= 2 * SLICES {
            points.iter().for_each(|&point| curve.push(point));
            return Some(curve);
        }
        let width = (last - first).max(f64::MIN_POSITIVE) / SLICES as f64;
        let slice = |t: f64| (((t - first) / width) as usize).min(SLICES - 1);
        for points in points.chunk_by(|a, b| slice(a.0) == slice(b.0)) {
            let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
            let (Some(least), Some(most)) = (points.iter().min_by(by_value), points.iter().max_by(by_value))
            else {
                continue;
            };
            let (earlier, later) = if least.0 <= most.0 { (least, most) } else { (most, least) };
            curve.push(*earlier);
            if earlier != later {
                curve.push(*later);
            }
        }
        curve.push((last, points[points.len() - 1].1));
        Some(curve)
    }

    /// Appends a point. Of a constant stretch, only the two ends are kept, because the line between them
    /// looks the same.
    fn push(&mut self, (t, v): (f64, f64)) {
        let (t, v) = (short(t, 6), short(v, 5));
        if let [.., before, last] = self.v[..]
            && before == last
            && last == v
            && let Some(end) = self.t.last_mut()
        {
            *end = t;
            return;
        }
        self.t.push(t);
        self.v.push(v);
    }
}

/// Rounds `value` to `digits` significant digits: no screen shows more digits, and the file becomes half as
/// long.
pub(super) fn short(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_and_ends_survive_the_thinning() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i) * 1e-3, 5.0)).collect();
        points[54_321].1 = 99.0;
        points[77_777].1 = -3.0;
        let curve = Curve::thinned(&points).expect("points");
        assert!(curve.t.len() <= 2 * SLICES + 1 && curve.t.len() == curve.v.len());
        assert!(curve.v.contains(&99.0) && curve.v.contains(&-3.0));
        assert_eq!((curve.t.first(), curve.t.last()), (Some(&0.0), Some(&99.999)));
        assert!(curve.t.is_sorted(), "a line that steps back in time");
    }

    #[test]
    fn few_points_stay_and_a_level_stretch_is_two() {
        let curve = Curve::thinned(&[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 2.0)]).expect("points");
        assert_eq!((curve.t, curve.v), (vec![0.0, 2.0, 3.0], vec![1.0, 1.0, 2.0]));
        assert_eq!(Curve::thinned(&[]), None);
    }
}

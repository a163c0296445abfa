//! The growth of a hoard with the number of images: a power law, fitted by least squares on logarithms. Pure.

use serde::Serialize;

/// Fewest points for a fit.
const POINTS_MIN: usize = 3;

/// `bytes = factor * images ^ exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Bytes for one image.
    pub factor: f64,
    /// 1 if nothing is shared, towards 0 if everything is.
    pub exponent: f64,
    /// Deviation of the points: the root mean square of the difference of logarithms, as a fraction: 0.05 means that a
    /// point is typically 5 % off.
    pub error: f64,
    /// Number of points.
    pub points: usize,
}

impl Fit {
    /// Fits the bytes after the first image, the second, and so on; `None` for fewer than three points, or without
    /// growth.
    pub(super) fn of(bytes: &[u64]) -> Option<Self> {
        let points: Vec<(f64, f64)> = (1..)
            .zip(bytes)
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(number, bytes)| (f64::from(number).ln(), (*bytes as f64).ln()))
            .collect();
        if points.len() < POINTS_MIN {
            return None;
        }
        let count = points.len() as f64;
        let mean = |take: fn(&(f64, f64)) -> f64| points.iter().map(take).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let common: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let exponent = common / spread;
        let intercept = mean_y - exponent * mean_x;
        let squares: f64 = points.iter().map(|(x, y)| (y - intercept - exponent * x).powi(2)).sum();
        let error = (squares / count).sqrt().exp() - 1.0;
        Some(Self { factor: intercept.exp(), exponent, error, points: points.len() })
    }

    /// Returns the bytes for this many images.
    pub fn bytes(&self, images: usize) -> u64 {
        (self.factor * (images as f64).powf(self.exponent)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_law_is_recovered() {
        let bytes: Vec<u64> = (1..=50).map(|n| (1e8 * f64::from(n).powf(0.4)) as u64).collect();
        let fit = Fit::of(&bytes).unwrap();
        assert!((fit.factor - 1e8).abs() < 10.0 && (fit.exponent - 0.4).abs() < 1e-6, "{fit:?}");
        assert!(fit.error < 1e-6 && fit.points == 50);
        assert!(fit.bytes(1000).abs_diff((1e8 * 1000_f64.powf(0.4)) as u64) < 1000);
    }

    #[test]
    fn deviations_count_as_error_and_few_points_give_no_fit() {
        assert_eq!(Fit::of(&[100, 200]), None);
        assert_eq!(Fit::of(&[0, 0, 0, 0]), None);
        let fit = Fit::of(&[100, 220, 270, 440, 450]).unwrap();
        assert!(fit.error > 0.02 && fit.error < 0.3, "{fit:?}");
    }
}

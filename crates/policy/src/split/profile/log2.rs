//! Logarithms and powers to the base of 2, for numbers that are positive and finite.
//!
//! `core` has none. The logarithm splits off the exponent and takes six terms of the series of the area tangent of
//! (m - 1) / (m + 1), the power takes nine of the exponential series; both are right to nine digits, which is more
//! than a measured throughput is. Rejected: the `libm` crate, for twenty lines.

use core::f64::consts::{LN_2, LOG2_E, SQRT_2};

const MANTISSA_BITS: u32 = 52;
const EXPONENT_BIAS: i64 = 1_023;

/// The logarithm of `x`.
pub(super) fn log2(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0, "the logarithm of {x}");
    let bits = x.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i64 - EXPONENT_BIAS;
    let mut mantissa = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | 1_f64.to_bits());
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = [1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    let sum = series.iter().fold(0.0, |sum, term| sum * square + term);
    exponent as f64 + 2.0 * ratio * sum * LOG2_E
}

/// Two to the power of `x`, which is between -1000 and 1000.
pub(super) fn exp2(x: f64) -> f64 {
    debug_assert!(x > -1_000.0 && x < 1_000.0, "two to the power of {x}");
    let whole = (x + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let rest = (x - whole as f64) * LN_2;
    let sum = (1..=9).rev().fold(1.0, |sum, nth| 1.0 + sum * rest / f64::from(nth));
    sum * f64::from_bits(((whole + EXPONENT_BIAS) as u64) << MANTISSA_BITS)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_agree_with_the_standard_library(exponent in -300.0..300.0_f64) {
            let x = f64::exp2(exponent);
            prop_assert!((log2(x) - exponent).abs() < 1e-9, "{}", log2(x));
            prop_assert!((exp2(exponent) / x - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn powers_of_two_are_exact() {
        for n in -20..=40 {
            let x = f64::powi(2.0, n);
            assert_eq!((log2(x), exp2(f64::from(n))), (f64::from(n), x));
        }
    }
}

//! The sRGB transfer curve (IEC 61966-2-1), computed by `+ - * /` alone: the same bits on every machine,
//! which `powf` does not promise.

/// 8-bit sRGB to linear light, 0 to 1.
pub static LINEAR: [f64; 256] = table();

#[allow(clippy::indexing_slicing, reason = "computed when the program is built")]
const fn table() -> [f64; 256] {
    let mut linear = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        linear[code] = decode(code as f64 / 255.0);
        code += 1;
    }
    linear
}

const fn decode(encoded: f64) -> f64 {
    if encoded <= 0.04045 { encoded / 12.92 } else { power_2_4((encoded + 0.055) / 1.055) }
}

/// `x` to the power of 2.4 for 0 < `x` <= 1: the fifth root of `x^12`, by Newton's method from above.
const fn power_2_4(x: f64) -> f64 {
    let x3 = x * x * x;
    let target = x3 * x3 * x3 * x3;
    let mut root = 1.0;
    let mut step = 0;
    while step < 64 {
        let root4 = root * root * root * root;
        root -= (root * root4 - target) / (5.0 * root4);
        step += 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_standard_curve() {
        for (code, &linear) in LINEAR.iter().enumerate() {
            let encoded = code as f64 / 255.0;
            let expected =
                if encoded <= 0.04045 { encoded / 12.92 } else { ((encoded + 0.055) / 1.055).powf(2.4) };
            assert!((linear - expected).abs() < 1e-14, "{code}: {linear} {expected}");
        }
    }
}

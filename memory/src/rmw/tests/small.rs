//! The 8-bit floats, exhaustively, against their definition in OCP's specification.

use super::*;

/// A format by its definition.
struct Definition {
    datatype: Datatype,
    fraction: u32,
    bias: i32,
    /// The largest finite number's bits.
    largest: u8,
    infinity: Option<u8>,
}

const FORMATS: [Definition; 2] = [
    Definition { datatype: Datatype::Float8E4M3, fraction: 3, bias: 7, largest: 0x7e, infinity: None },
    Definition { datatype: Datatype::Float8E5M2, fraction: 2, bias: 15, largest: 0x7b, infinity: Some(0x7c) },
];

impl Definition {
    fn value(&self, bits: u8) -> f64 {
        let magnitude = bits & 0x7f;
        let scale = f64::from(1 << self.fraction);
        let (exponent, fraction) = (i32::from(magnitude >> self.fraction), magnitude & ((1 << self.fraction) - 1));
        let value = match exponent {
            _ if Some(magnitude) == self.infinity => f64::INFINITY,
            _ if magnitude > self.largest => f64::NAN,
            0 => f64::from(fraction) / scale * 2f64.powi(1 - self.bias),
            _ => (1.0 + f64::from(fraction) / scale) * 2f64.powi(exponent - self.bias),
        };
        if bits & 0x80 == 0 { value } else { -value }
    }

    /// The nearest number's bits, of two the even ones; `None` for a NaN.
    fn nearest(&self, value: f64) -> Option<u8> {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let magnitude = value.abs().min(self.value(self.largest));
        let distance = |bits: u8| (self.value(bits) - magnitude).abs();
        let best = (0..=self.largest).min_by(|a, b| distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1))));
        (!value.is_nan()).then_some(best? | sign)
    }
}

#[test]
fn small_floats_compute_as_their_definition_says() {
    let pages = Pages::new(1);
    let region = pages.region();
    for format in FORMATS {
        let target = range(&region, 3, 1);
        for pair in 0..=u16::MAX {
            let [a, b] = pair.to_ne_bytes();
            let (x, y) = (format.value(a), format.value(b));
            let run = |op| {
                target.write(0, &[a]).unwrap();
                let mut before = [0];
                apply(&target, &call(format.datatype, op, &[b]), Some(&mut before)).unwrap();
                assert_eq!(before, [a]);
                pages.copy(3, 1)[0]
            };
            for (op, exact) in [(AtomicOp::Sum, x + y), (AtomicOp::Diff, x - y), (AtomicOp::Prod, x * y)] {
                let got = run(op);
                match format.nearest(exact) {
                    Some(bits) => assert_eq!(got, bits, "{:?} {a:#x} {op:?} {b:#x}", format.datatype),
                    None => assert!(format.value(got).is_nan(), "{:?} {a:#x} {op:?} {b:#x}", format.datatype),
                }
            }
            assert_eq!(run(AtomicOp::Min), if y < x { b } else { a });
            assert_eq!(run(AtomicOp::Max), if y > x { b } else { a });
            let logical = |truth| format.nearest(if truth { 1.0 } else { 0.0 }).unwrap();
            assert_eq!(run(AtomicOp::Lxor), logical((x != 0.0) != (y != 0.0)));
            assert_eq!(run(AtomicOp::Land), logical(x != 0.0 && y != 0.0));
            assert_eq!(run(AtomicOp::Lor), logical(x != 0.0 || y != 0.0));
        }
    }
}

#[test]
fn small_floats_are_compared_as_numbers() {
    let pages = Pages::new(1);
    let region = pages.region();
    for format in FORMATS {
        let target = range(&region, 0, 1);
        for pair in 0..=u16::MAX {
            let [a, compare] = pair.to_ne_bytes();
            let (x, z) = (format.value(a), format.value(compare));
            let ops = [
                (AtomicOp::Cswap, z == x),
                (AtomicOp::CswapNe, z != x),
                (AtomicOp::CswapLe, z <= x),
                (AtomicOp::CswapLt, z < x),
                (AtomicOp::CswapGe, z >= x),
                (AtomicOp::CswapGt, z > x),
            ];
            for (op, swaps) in ops {
                target.write(0, &[a]).unwrap();
                let call = AtomicCall { datatype: format.datatype, op, operand: &[!a], compare: &[compare] };
                apply(&target, &call, None).unwrap();
                assert_eq!(pages.copy(0, 1)[0], if swaps { !a } else { a }, "{a:#x} {op:?} {compare:#x}");
            }
        }
    }
}

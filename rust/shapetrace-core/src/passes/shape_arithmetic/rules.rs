//! Python's arithmetic on numbers, and the rules that simplify it.
//!
//! A rule looks at what is known of two operands and says what the result is without computing
//! it. It is in the table only if it is exact for every value the operands can take; the tests
//! below try each rule, and whole expressions, against [`evaluate`], and the Python tests try
//! [`evaluate`] against Python itself and thunder's Python executor.

use std::sync::LazyLock;

use crate::ir::{Number, NumberType, ScalarOp};

/// The result of the operation on literals, as thunder's Python executor computes it.
///
/// None where Python raises, where the result does not fit 64 bits, or where it would take
/// floating-point operations whose last digit is not certain.
pub fn evaluate(op: ScalarOp, a: Number, b: Number) -> Option<Number> {
    use ScalarOp as S;
    let exact = |value: Option<i64>| value.map(Number::Int);
    if let S::Convert = op {
        let Number::Type(to) = b else { return None };
        return convert(a, to);
    }
    if let (Number::Float(x), S::Signbit) = (a, op) {
        return Some(Number::Bool(x < 0.0));
    }
    if let (Number::Bool(x), Number::Bool(y)) = (a, b) {
        match op {
            S::BitwiseAnd => return Some(Number::Bool(x & y)),
            S::BitwiseOr => return Some(Number::Bool(x | y)),
            S::BitwiseXor => return Some(Number::Bool(x ^ y)),
            _ => {}
        }
    }
    let x = a.as_int()?;
    match op {
        S::Signbit => return Some(Number::Bool(x < 0)),
        S::Neg => return exact(x.checked_neg()),
        S::Abs => return exact(x.checked_abs()),
        _ => {}
    }
    let y = b.as_int()?;
    match op {
        S::Add => exact(x.checked_add(y)),
        S::Sub => exact(x.checked_sub(y)),
        S::Mul => exact(x.checked_mul(y)),
        S::Div => exact(x.checked_div(y)),
        S::FloorDiv => exact(floor_div(x, y)),
        S::Remainder => exact(floor_div(x, y).and_then(|q| x.checked_sub(q.checked_mul(y)?))),
        S::Fmod => {
            // Where both operands are exact as floats, so is the remainder.
            (y != 0).then(|| Some(Number::Float(exact_float(x)? % exact_float(y)?)))?
        }
        S::Eq => Some(Number::Bool(x == y)),
        S::Ne => Some(Number::Bool(x != y)),
        S::Lt => Some(Number::Bool(x < y)),
        S::Le => Some(Number::Bool(x <= y)),
        S::Gt => Some(Number::Bool(x > y)),
        S::Ge => Some(Number::Bool(x >= y)),
        S::BitwiseAnd => exact(Some(x & y)),
        S::BitwiseOr => exact(Some(x | y)),
        S::BitwiseXor => exact(Some(x ^ y)),
        S::Pow | S::Convert | S::Signbit | S::Neg | S::Abs => None,
    }
}

/// The integer as a float, where every integer up to it is one.
#[allow(clippy::cast_precision_loss)]
fn exact_float(x: i64) -> Option<f64> {
    (x.unsigned_abs() <= 1 << 53).then_some(x as f64)
}

fn floor_div(x: i64, y: i64) -> Option<i64> {
    let quotient = x.checked_div(y)?;
    let inexact = quotient.checked_mul(y)? != x;
    Some(if inexact && (x < 0) != (y < 0) { quotient - 1 } else { quotient })
}

fn convert(a: Number, to: NumberType) -> Option<Number> {
    match (a, to) {
        (Number::Float(x), NumberType::Int) => {
            // Every integer of this size is a float, so the truncated value converts exactly.
            let fits = x.is_finite() && x.abs() < 2_f64.powi(62);
            fits.then(|| Number::Int(x.trunc() as i64))
        }
        (Number::Float(x), NumberType::Bool) => Some(Number::Bool(x != 0.0)),
        (Number::Float(x), NumberType::Float) => Some(Number::Float(x)),
        (_, NumberType::Int) => a.as_int().map(Number::Int),
        (_, NumberType::Bool) => a.as_int().map(|x| Number::Bool(x != 0)),
        (_, NumberType::Float) => exact_float(a.as_int()?).map(Number::Float),
        (_, NumberType::Other) => None,
    }
}

/// What is known of one operand.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its type.
    pub number_type: NumberType,
    /// Its value, if it is a literal.
    pub literal: Option<Number>,
    /// Whether it is never negative.
    pub nonnegative: bool,
}

impl Known {
    fn is_exact(self) -> bool {
        matches!(self.number_type, NumberType::Int | NumberType::Bool)
    }
    fn is_int(self) -> bool {
        self.number_type == NumberType::Int
    }
    fn is_bool(self) -> bool {
        self.number_type == NumberType::Bool
    }
    fn is_literal(self, value: i64) -> bool {
        self.literal.and_then(Number::as_int) == Some(value)
    }
    fn is_false(self) -> bool {
        self.literal == Some(Number::Bool(false))
    }
    fn is_true(self) -> bool {
        self.literal == Some(Number::Bool(true))
    }
    fn is_negative_literal(self) -> bool {
        self.literal.and_then(Number::as_int).is_some_and(|value| value < 0)
    }
    fn is_nonpositive_literal(self) -> bool {
        self.literal.and_then(Number::as_int).is_some_and(|value| value <= 0)
    }
}

/// What a rule says of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is this number.
    Literal(Number),
    /// It is the first operand.
    First,
}

/// One exact simplification.
///
/// Operands come in canonical order: of a commutative operation or a comparison the literal is
/// the second operand.
pub struct Rule {
    /// Its name in tests and documents.
    pub name: &'static str,
    /// The operations it is for.
    pub ops: &'static [ScalarOp],
    /// When it holds, in words.
    pub condition: &'static str,
    /// The rule: what is known of the operands, and whether they are the same number.
    pub apply: fn(Known, Known, bool) -> Option<Answer>,
}

const TRUE: Answer = Answer::Literal(Number::Bool(true));
const FALSE: Answer = Answer::Literal(Number::Bool(false));
const ZERO: Answer = Answer::Literal(Number::Int(0));

/// All rules. The first that answers wins.
pub static RULES: &[Rule] = &[
    Rule {
        name: "times-one",
        ops: &[ScalarOp::Mul, ScalarOp::Div, ScalarOp::FloorDiv],
        condition: "n is an int: n * 1, n / 1 (C division) and n // 1 are n",
        apply: |a, b, _| (a.is_int() && b.is_exact() && b.is_literal(1)).then_some(Answer::First),
    },
    Rule {
        name: "times-zero",
        ops: &[ScalarOp::Mul],
        condition: "n is an int or a bool: n * 0 is 0",
        apply: |a, b, _| (a.is_exact() && b.is_exact() && b.is_literal(0)).then_some(ZERO),
    },
    Rule {
        name: "plus-zero",
        ops: &[ScalarOp::Add, ScalarOp::Sub, ScalarOp::BitwiseOr, ScalarOp::BitwiseXor],
        condition: "n is an int: n + 0, n - 0, n | 0 and n ^ 0 are n",
        apply: |a, b, _| (a.is_int() && b.is_exact() && b.is_literal(0)).then_some(Answer::First),
    },
    Rule {
        name: "minus-self",
        ops: &[ScalarOp::Sub],
        condition: "n is an int or a bool: n - n is 0",
        apply: |a, _, same| (same && a.is_exact()).then_some(ZERO),
    },
    Rule {
        name: "remainder-one",
        ops: &[ScalarOp::Remainder],
        condition: "n is an int or a bool: n % 1 is 0",
        apply: |a, b, _| (a.is_exact() && b.is_exact() && b.is_literal(1)).then_some(ZERO),
    },
    Rule {
        name: "compare-self",
        ops: &[ScalarOp::Eq, ScalarOp::Le, ScalarOp::Ge],
        condition: "n is an int or a bool (a float may be NaN): n == n, n <= n, n >= n",
        apply: |a, _, same| (same && a.is_exact()).then_some(TRUE),
    },
    Rule {
        name: "differ-from-self",
        ops: &[ScalarOp::Ne, ScalarOp::Lt, ScalarOp::Gt],
        condition: "n is an int or a bool (a float may be NaN): not n != n, not n < n, not n > n",
        apply: |a, _, same| (same && a.is_exact()).then_some(FALSE),
    },
    Rule {
        name: "nonnegative-above",
        ops: &[ScalarOp::Ne, ScalarOp::Gt, ScalarOp::Ge],
        condition: "n is never negative, c is a negative literal: n != c, n > c, n >= c",
        apply: |a, b, _| (a.is_exact() && a.nonnegative && b.is_negative_literal()).then_some(TRUE),
    },
    Rule {
        name: "nonnegative-not-below",
        ops: &[ScalarOp::Eq, ScalarOp::Lt, ScalarOp::Le],
        condition: "n is never negative, c is a negative literal: not n == c, not n < c, not n <= c",
        apply: |a, b, _| (a.is_exact() && a.nonnegative && b.is_negative_literal()).then_some(FALSE),
    },
    Rule {
        name: "nonnegative-at-least-zero",
        ops: &[ScalarOp::Ge],
        condition: "n is never negative, c is 0 or below: n >= c",
        apply: |a, b, _| (a.is_exact() && a.nonnegative && b.is_nonpositive_literal()).then_some(TRUE),
    },
    Rule {
        name: "nonnegative-not-less-than-zero",
        ops: &[ScalarOp::Lt],
        condition: "n is never negative, c is 0 or below: not n < c",
        apply: |a, b, _| (a.is_exact() && a.nonnegative && b.is_nonpositive_literal()).then_some(FALSE),
    },
    Rule {
        name: "nonnegative-has-no-sign",
        ops: &[ScalarOp::Signbit],
        condition: "n is an int or a bool that is never negative: not signbit(n)",
        apply: |a, _, _| (a.is_exact() && a.nonnegative).then_some(FALSE),
    },
    Rule {
        name: "nonnegative-is-its-magnitude",
        ops: &[ScalarOp::Abs],
        condition: "n is an int that is never negative: abs(n) is n",
        apply: |a, _, _| (a.is_int() && a.nonnegative).then_some(Answer::First),
    },
    Rule {
        name: "bool-differs-from-false",
        ops: &[ScalarOp::Ne, ScalarOp::BitwiseOr, ScalarOp::BitwiseXor],
        condition: "b is a bool: b != False, b | False and b ^ False are b",
        apply: |a, b, _| (a.is_bool() && b.is_false()).then_some(Answer::First),
    },
    Rule {
        name: "bool-differs-from-zero",
        ops: &[ScalarOp::Ne],
        condition: "b is a bool: b != 0 is b",
        apply: |a, b, _| (a.is_bool() && b.is_exact() && b.is_literal(0)).then_some(Answer::First),
    },
    Rule {
        name: "bool-equals-true",
        ops: &[ScalarOp::Eq, ScalarOp::BitwiseAnd],
        condition: "b is a bool: b == True and b & True are b",
        apply: |a, b, _| (a.is_bool() && b.is_true()).then_some(Answer::First),
    },
    Rule {
        name: "and-false",
        ops: &[ScalarOp::BitwiseAnd],
        condition: "b is a bool: b & False is False",
        apply: |a, b, _| (a.is_bool() && b.is_false()).then_some(FALSE),
    },
    Rule {
        name: "or-true",
        ops: &[ScalarOp::BitwiseOr],
        condition: "b is a bool: b | True is True",
        apply: |a, b, _| (a.is_bool() && b.is_true()).then_some(TRUE),
    },
    Rule {
        name: "with-self",
        ops: &[ScalarOp::BitwiseAnd, ScalarOp::BitwiseOr],
        condition: "n is an int or a bool: n & n and n | n are n",
        apply: |a, _, same| (same && a.is_exact()).then_some(Answer::First),
    },
    Rule {
        name: "convert-to-own-type",
        ops: &[ScalarOp::Convert],
        condition: "n has the type already: int(n), bool(n) or float(n) is n",
        apply: |a, b, _| {
            let to = b.literal?;
            (a.number_type != NumberType::Other && to == Number::Type(a.number_type)).then_some(Answer::First)
        },
    },
];

/// What the rules say of an operation.
pub fn simplify(op: ScalarOp, a: Known, b: Known, same: bool) -> Option<Answer> {
    // Which rules are for which operation is found once: this is asked for every op of arithmetic.
    static RULES_OF: LazyLock<Vec<Vec<&Rule>>> = LazyLock::new(|| {
        let rules_of = |op| RULES.iter().filter(|rule| rule.ops.contains(op)).collect();
        ScalarOp::ALL.iter().map(rules_of).collect()
    });
    RULES_OF[op as usize].iter().find_map(|rule| (rule.apply)(a, b, same))
}

/// Whether the result is never negative, given that the operands are what is known of them.
pub fn is_nonnegative(op: ScalarOp, result: NumberType, a: Known, b: Known) -> bool {
    use ScalarOp as S;
    if result == NumberType::Bool {
        return true;
    }
    if result != NumberType::Int || !a.is_exact() {
        return false;
    }
    match op {
        S::Add | S::Mul | S::Div | S::FloorDiv | S::BitwiseOr | S::BitwiseXor => {
            a.nonnegative && b.nonnegative && b.is_exact()
        }
        S::BitwiseAnd => b.is_exact() && (a.nonnegative || b.nonnegative),
        // Python's remainder has the sign of the divisor.
        S::Remainder => b.is_exact() && b.nonnegative,
        S::Abs => true,
        S::Convert => a.nonnegative,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &[i64] =
        &[0, 1, -1, 2, -2, 3, -3, 7, -8, 12, 64, -64, 1 << 31, -(1 << 31), (1 << 53) + 1, i64::MAX, i64::MIN];

    /// The pass does not ask where both operands are numbers of which no value is known, unless they are the same.
    #[test]
    fn no_rule_is_for_two_numbers_of_which_neither_is_known() {
        let types = [NumberType::Bool, NumberType::Int, NumberType::Float, NumberType::Other];
        let kinds = types.into_iter().flat_map(|number_type| [false, true].map(|sign| (number_type, sign)));
        let operands: Vec<Known> =
            kinds.map(|(number_type, nonnegative)| Known { number_type, literal: None, nonnegative }).collect();
        for &op in ScalarOp::ALL.iter().filter(|op| op.arity() == 2) {
            for (&a, &b) in operands.iter().flat_map(|a| operands.iter().map(move |b| (a, b))) {
                assert_eq!(simplify(op, a, b, false), None, "{op:?} {a:?} {b:?}");
            }
        }
    }

    /// Literals of each exact type, and the facts that hold for them.
    fn operands() -> Vec<(Known, Number)> {
        let mut all = Vec::new();
        let numbers = SAMPLES.iter().map(|&i| Number::Int(i)).chain([Number::Bool(false), Number::Bool(true)]);
        for number in numbers {
            let value = number.as_int().expect("exact");
            for literal in [None, Some(number)] {
                for nonnegative in [false, true] {
                    if nonnegative && value < 0 {
                        continue;
                    }
                    all.push((Known { number_type: number.number_type(), literal, nonnegative }, number));
                }
            }
        }
        all
    }

    /// Each rule must give what the arithmetic gives for every operand that its facts allow, and
    /// each rule must have something to say, or it protects nothing.
    #[test]
    fn every_rule_agrees_with_the_arithmetic_and_fires() {
        for rule in RULES {
            let mut fired = 0;
            for &op in rule.ops {
                for (known_a, a) in operands() {
                    if op == ScalarOp::Convert {
                        for to in [NumberType::Bool, NumberType::Int, NumberType::Float] {
                            let b = Number::Type(to);
                            let known_b =
                                Known { number_type: NumberType::Other, literal: Some(b), nonnegative: false };
                            fired += check(rule, op, (known_a, a), (known_b, b), false);
                        }
                        continue;
                    }
                    for (known_b, b) in operands() {
                        fired += check(rule, op, (known_a, a), (known_b, b), false);
                    }
                    fired += check(rule, op, (known_a, a), (known_a, a), true);
                }
            }
            assert!(fired > 0, "{} never fires", rule.name);
        }
    }

    fn check(rule: &Rule, op: ScalarOp, a: (Known, Number), b: (Known, Number), same: bool) -> usize {
        let Some(answer) = (rule.apply)(a.0, b.0, same) else { return 0 };
        // Where the arithmetic raises or leaves 64 bits there is nothing to compare with.
        let Some(right) = evaluate(op, a.1, b.1) else { return 0 };
        let said = match answer {
            Answer::Literal(number) => number,
            Answer::First => a.1,
        };
        assert_eq!(said, right, "{}: {op:?} of {:?} and {:?}", rule.name, a.1, b.1);
        1
    }

    #[test]
    fn rules_say_nothing_of_floats_that_may_be_nan_or_signed_zero() {
        let float = Known { number_type: NumberType::Float, literal: None, nonnegative: false };
        let one = Known { number_type: NumberType::Int, literal: Some(Number::Int(1)), nonnegative: true };
        let zero = Known { number_type: NumberType::Int, literal: Some(Number::Int(0)), nonnegative: true };
        for &op in ScalarOp::ALL {
            for (other, same) in [(one, false), (zero, false), (float, true), (float, false)] {
                assert_eq!(simplify(op, float, other, same), None, "{op:?} {other:?} {same}");
            }
        }
    }

    #[test]
    fn nonnegative_results_are_not_negative() {
        for &op in ScalarOp::ALL {
            for (known_a, a) in operands() {
                for (known_b, b) in operands() {
                    let Some(result) = evaluate(op, a, b) else { continue };
                    if is_nonnegative(op, result.number_type(), known_a, known_b) {
                        assert!(result.as_int().is_some_and(|value| value >= 0), "{op:?} {a:?} {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn division_follows_c_and_floor_division_follows_python() {
        let int = |op, a, b| evaluate(op, Number::Int(a), Number::Int(b));
        assert_eq!(int(ScalarOp::Div, -7, 2), Some(Number::Int(-3)));
        assert_eq!(int(ScalarOp::FloorDiv, -7, 2), Some(Number::Int(-4)));
        assert_eq!(int(ScalarOp::Remainder, -7, 2), Some(Number::Int(1)));
        assert_eq!(int(ScalarOp::Remainder, 7, -2), Some(Number::Int(-1)));
        assert_eq!(int(ScalarOp::FloorDiv, i64::MIN, -1), None, "does not fit");
        for op in [ScalarOp::Div, ScalarOp::FloorDiv, ScalarOp::Remainder, ScalarOp::Fmod] {
            assert_eq!(int(op, 5, 0), None, "{op:?} by zero raises");
        }
    }
}

//! What the text form leaves out because it follows from names.

use crate::ir::{Number, NumberType, OpFlags, ScalarOp, SymbolFlags, ValueKind};

/// The words for what holds for every op of a symbol.
pub const SYMBOL_FLAG_WORDS: &[(&str, SymbolFlags)] = &[
    ("effectful", SymbolFlags::EFFECT),
    ("random", SymbolFlags::RANDOM),
    ("in-place", SymbolFlags::IN_PLACE),
    ("primitive", SymbolFlags::PRIMITIVE),
    ("fusion", SymbolFlags::FUSION),
    ("return", SymbolFlags::RETURN),
    ("defines-nothing", SymbolFlags::DEFINES_NOTHING),
    ("trusted", SymbolFlags::TRUSTED),
    ("query", SymbolFlags::SHAPE_QUERY),
    ("usual-printer", SymbolFlags::USUAL_PRINTER),
    ("no-effect", SymbolFlags::NO_EFFECT),
    ("pure", SymbolFlags::PURE),
];

/// The words for what holds for one op.
pub const OP_FLAG_WORDS: &[(&str, OpFlags)] = &[
    ("effect", OpFlags::EFFECT),
    ("keywords", OpFlags::KEYWORDS),
    ("literal", OpFlags::LITERAL_RESULT),
    ("empty", OpFlags::EMPTY_RESULT),
    ("effectless", OpFlags::NO_EFFECT),
    ("unread", OpFlags::UNREAD_RESULT),
    ("fixed", OpFlags::FIXED_NAMES),
];

/// The flags, and the arithmetic, of a symbol that says nothing else.
///
/// `prims.*` are the host's primitives, with the random ones, the shape query, the arithmetic and
/// those with effects among them; `ltorch.*`, `clang.*` and `numpy.*` its composites;
/// `nvFusion*` fusions; all others come from elsewhere and nothing is known of them.
pub fn symbol_flags(name: &str) -> (SymbolFlags, Option<ScalarOp>) {
    let host = SymbolFlags::TRUSTED | SymbolFlags::USUAL_PRINTER;
    if name == "return" {
        let flags = SymbolFlags::RETURN | SymbolFlags::EFFECT | SymbolFlags::DEFINES_NOTHING;
        return (host | SymbolFlags::PRIMITIVE | flags, None);
    }
    if let Some(primitive) = name.strip_prefix("prims.") {
        let more = match primitive {
            "shape" => SymbolFlags::SHAPE_QUERY,
            "uniform" | "randn" | "multinomial" => SymbolFlags::RANDOM,
            "python_print" => SymbolFlags::EFFECT | SymbolFlags::DEFINES_NOTHING,
            "comment" => SymbolFlags::DEFINES_NOTHING,
            "copy_" => SymbolFlags::EFFECT | SymbolFlags::IN_PLACE,
            _ => SymbolFlags::empty(),
        };
        return (host | SymbolFlags::PRIMITIVE | more, ScalarOp::from_name(primitive));
    }
    if ["ltorch.", "clang.", "numpy."].iter().any(|module| name.starts_with(module)) {
        return (host, None);
    }
    if name.starts_with("nvFusion") {
        return (SymbolFlags::FUSION, None);
    }
    (SymbolFlags::empty(), None)
}

/// The kind of a result of which nothing is said, given the kinds of the operands.
pub(super) fn result_kind(
    flags: SymbolFlags,
    scalar: Option<ScalarOp>,
    operands: impl Iterator<Item = ValueKind> + Clone,
) -> ValueKind {
    use ScalarOp as S;
    if flags.contains(SymbolFlags::SHAPE_QUERY) {
        return ValueKind::Number(NumberType::Int);
    }
    let Some(scalar) = scalar else { return ValueKind::Tensor };
    let types = operands.map(|kind| match kind {
        ValueKind::Number(number_type) => Some(number_type),
        _ => None,
    });
    if types.clone().next().is_none() || types.clone().any(|number_type| number_type.is_none()) {
        return ValueKind::Tensor;
    }
    let all = |wanted| types.clone().all(|number_type| number_type == Some(wanted));
    let any = |wanted| types.clone().any(|number_type| number_type == Some(wanted));
    ValueKind::Number(match scalar {
        S::Eq | S::Ne | S::Lt | S::Le | S::Gt | S::Ge | S::Signbit => NumberType::Bool,
        S::BitwiseAnd | S::BitwiseOr | S::BitwiseXor if all(NumberType::Bool) => NumberType::Bool,
        S::Fmod => NumberType::Float,
        S::Convert => types.last().flatten().unwrap_or(NumberType::Other),
        _ if any(NumberType::Other) => NumberType::Other,
        _ if any(NumberType::Float) => NumberType::Float,
        _ => NumberType::Int,
    })
}

/// What a literal operand counts as when the kind of a result is derived. The type operand of a
/// conversion counts as a number of that type.
pub(super) fn literal_kind(number: Number) -> ValueKind {
    ValueKind::Number(match number {
        Number::Type(number_type) => number_type,
        _ => number.number_type(),
    })
}

/// The word of a kind.
pub(super) fn kind_word(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Tensor => "tensor",
        ValueKind::Number(NumberType::Int) => "int",
        ValueKind::Number(NumberType::Float) => "float",
        ValueKind::Number(NumberType::Bool) => "bool",
        ValueKind::Number(NumberType::Other) => "number",
        ValueKind::Other => "other",
    }
}

/// The kind of a word.
pub(super) fn kind_of_word(word: &str) -> Option<ValueKind> {
    let kinds = [NumberType::Int, NumberType::Float, NumberType::Bool, NumberType::Other].map(ValueKind::Number);
    kinds.into_iter().chain([ValueKind::Tensor, ValueKind::Other]).find(|&kind| kind_word(kind) == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_one_word() {
        assert_eq!(SYMBOL_FLAG_WORDS.iter().map(|&(_, flag)| flag).collect::<SymbolFlags>(), SymbolFlags::all());
        assert_eq!(OP_FLAG_WORDS.iter().map(|&(_, flag)| flag).collect::<OpFlags>(), OpFlags::all());
        let mut words: Vec<_> =
            SYMBOL_FLAG_WORDS.iter().map(|flag| flag.0).chain(OP_FLAG_WORDS.iter().map(|flag| flag.0)).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), SYMBOL_FLAG_WORDS.len() + OP_FLAG_WORDS.len());
    }
}

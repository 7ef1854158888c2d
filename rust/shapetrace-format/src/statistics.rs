//! What is in a trace, counted.

use rustc_hash::FxHashMap;
use shapetrace_core::analysis::effects::Effects;
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{NumberType, Program, Reason, Scope, SymbolFlags, ValueKind};
use shapetrace_core::passes::{Context, Level};

use crate::optimize::{lacks_return, DEFAULT_OPTIONS};
use crate::TraceFile;

/// The answer of [`statistics`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Ops at the top level.
    pub top_level_ops: usize,
    /// Ops in the scopes inside others.
    pub nested_ops: usize,
    /// Scopes, the top level included.
    pub scopes: usize,
    /// How deep the deepest scope is; 0 if there is the top level only.
    pub deepest_scope: usize,
    /// Operands of all ops, literals of arithmetic included.
    pub operands: usize,
    /// Result slots of all ops.
    pub results: usize,
    /// Ops by what they are, at any depth; an op can be of several kinds. Words are joined by `_`, here
    /// and in `values`.
    pub kinds: Vec<(&'static str, usize)>,
    /// Values by what they are.
    pub values: Vec<(&'static str, usize)>,
    /// Ops by symbol, at any depth, the commonest first.
    pub symbols: Vec<(String, usize)>,
    /// Ops that the optimizer would remove at level "full", by reason; none of a trace without a return.
    pub removable: Vec<(&'static str, usize)>,
}

/// Counts what is in a trace. Linear but for sorting the symbols; no recursion.
pub fn statistics(file: &TraceFile) -> Statistics {
    let program = &file.program;
    let top_level_ops = program.scope_ops(Scope::TOP).len();
    let mut context = Context::default();
    let edits = context.run(program, Level::Full, &DEFAULT_OPTIONS);
    let nothing_goes = lacks_return(program);
    let count = |reason| if nothing_goes { 0 } else { edits.removed_count(reason) };
    let removable = Reason::ALL.iter().map(|&reason| (reason.name(), count(reason))).collect();
    Statistics {
        top_level_ops,
        nested_ops: program.op_count() - top_level_ops,
        scopes: program.scope_count(),
        deepest_scope: deepest_scope(program),
        operands: program.ops().map(|op| program.operands(op).len()).sum(),
        results: program.result_count(),
        kinds: kinds(program, context.effects()),
        values: values(program),
        symbols: symbols(program),
        removable,
    }
}

fn deepest_scope(program: &Program) -> usize {
    // A scope comes before those inside it.
    let mut depths = vec![0; program.scope_count()];
    for scope in program.scopes() {
        if let Some(parent) = program.scope_parent(scope) {
            depths[scope.index()] = depths[parent.index()] + 1;
        }
    }
    depths.into_iter().max().unwrap_or(0)
}

fn kinds(program: &Program, effects: &Effects) -> Vec<(&'static str, usize)> {
    let with = |flag| program.ops().filter(|&op| program.symbol_flags(op).contains(flag)).count();
    vec![
        ("primitives", with(SymbolFlags::PRIMITIVE)),
        ("composites", program.ops().filter(|&op| program.op_scope(op).is_some()).count()),
        ("fusions", with(SymbolFlags::FUSION)),
        ("shape_queries", program.ops().filter(|&op| program.shape_query(op).is_some()).count()),
        ("scalar_arithmetic", program.ops().filter(|&op| program.scalar_op(op).is_some()).count()),
        ("with_an_effect", program.ops().filter(|&op| effects.has_effect(op)).count()),
        ("random", with(SymbolFlags::RANDOM)),
        ("in_place", with(SymbolFlags::IN_PLACE)),
    ]
}

fn values(program: &Program) -> Vec<(&'static str, usize)> {
    let kinds = [
        ("tensors", ValueKind::Tensor),
        ("integers", ValueKind::Number(NumberType::Int)),
        ("floats", ValueKind::Number(NumberType::Float)),
        ("booleans", ValueKind::Number(NumberType::Bool)),
        ("other_numbers", ValueKind::Number(NumberType::Other)),
        ("others", ValueKind::Other),
    ];
    let count = |kind| program.values().filter(|&value| program.value_kind(value) == kind).count();
    kinds.into_iter().map(|(name, kind)| (name, count(kind))).collect()
}

fn symbols(program: &Program) -> Vec<(String, usize)> {
    let mut counts: FxHashMap<&str, usize> = FxHashMap::default();
    for op in program.ops() {
        *counts.entry(&program.symbol(op).name).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    counts.sort_unstable_by(|(name_a, a), (name_b, b)| b.cmp(a).then_with(|| name_a.cmp(name_b)));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_there() {
        let file = crate::text::parse(
            "trace(%x) {
               %i0, %i1 = prims.shape(%x)
               %j0, %j1 = prims.shape(%x)
               %y = ltorch.silu(%x) {
                 %n = prims.mul(%i0, 2)
                 %y = prims.silu(%x)
               }
               %z = prims.sin(%x)
               return %y
             }",
        )
        .expect("a program");
        let found = statistics(&file);
        assert_eq!((found.top_level_ops, found.nested_ops), (5, 2));
        assert_eq!((found.scopes, found.deepest_scope), (2, 1));
        assert_eq!(found.symbols[0], ("prims.shape".to_owned(), 2));
        let of = |counts: &[(&'static str, usize)], name| counts.iter().find(|(known, _)| *known == name).map(|c| c.1);
        assert_eq!(of(&found.kinds, "shape_queries"), Some(2));
        assert_eq!(of(&found.kinds, "scalar_arithmetic"), Some(1));
        assert_eq!(of(&found.kinds, "composites"), Some(1));
        assert_eq!(of(&found.values, "tensors"), Some(3));
        assert_eq!(of(&found.values, "integers"), Some(5));
        assert!(found.removable.iter().map(|(_, count)| count).sum::<usize>() >= 4, "{:?}", found.removable);
    }

    #[test]
    fn nothing_is_removable_without_a_return() {
        let removable = |source: &str| -> usize {
            let file = crate::text::parse(source).expect("a program");
            statistics(&file).removable.iter().map(|(_, count)| count).sum()
        };
        assert_eq!(removable("trace(%x) {\n  %y = prims.sin(%x)\n}\n"), 0);
        assert_eq!(removable("trace(%x) keep(%x) {\n  %y = prims.sin(%x)\n}\n"), 1);
        assert_eq!(removable("trace(%x) {\n  %y = prims.sin(%x)\n  return %x\n}\n"), 1);
    }

    #[test]
    fn an_empty_program_has_nothing() {
        let found = statistics(&crate::text::parse("trace {\n}\n").expect("a program"));
        assert_eq!((found.top_level_ops, found.nested_ops, found.scopes, found.deepest_scope), (0, 0, 1, 0));
        assert!(found.symbols.is_empty());
    }
}

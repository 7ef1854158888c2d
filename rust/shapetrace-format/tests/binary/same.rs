//! Whether two files are the same, by all that can be asked of them.

use shapetrace_core::entity::Entity;
use shapetrace_core::ir::Constant;
use shapetrace_format::TraceFile;

/// Fails where the files differ.
pub(crate) fn assert_same(left: &TraceFile, right: &TraceFile) {
    let (a, b) = (&left.program, &right.program);
    assert_eq!(a.symbols(), b.symbols(), "symbols");
    assert_eq!(a.constants(), b.constants(), "constants");
    assert_eq!(a.value_count(), b.value_count(), "values");
    assert_eq!(a.has_numbers(), b.has_numbers());
    for value in a.values() {
        assert_eq!(a.value_kind(value), b.value_kind(value), "kind of {value}");
        assert_eq!(a.given_name(value), b.given_name(value), "name of {value}");
        assert_eq!(a.hint_constant(value), b.hint_constant(value), "hint of {value}");
    }
    assert_eq!(a.scope_count(), b.scope_count(), "scopes");
    for scope in a.scopes() {
        assert_eq!(a.scope_owner(scope), b.scope_owner(scope), "owner of {scope}");
        assert_eq!(a.scope_parent(scope), b.scope_parent(scope), "parent of {scope}");
        assert_eq!(a.scope_range(scope), b.scope_range(scope), "ops of {scope}");
    }
    assert_eq!(a.op_count(), b.op_count(), "ops");
    for op in a.ops() {
        assert_eq!(a.symbol_id(op), b.symbol_id(op), "symbol of {op}");
        assert_eq!(a.flags(op), b.flags(op), "flags of {op}");
        assert_eq!(a.op_scope(op), b.op_scope(op), "scope of {op}");
        assert_eq!(a.operands(op), b.operands(op), "operands of {op}");
        assert_eq!(a.results(op), b.results(op), "results of {op}");
    }
    assert_eq!((a.inputs(), a.outputs(), a.pinned()), (b.inputs(), b.outputs(), b.pinned()));
    assert_eq!(a.shape_mentions(), b.shape_mentions());
    // What equality of numbers might miss.
    for index in 0..a.constants().len() {
        let [x, y] = [a, b].map(|program| format!("{:?}", program.constant(Constant::from_index(index))));
        assert_eq!(x, y);
    }
    let (Some(a), Some(b)) = (&left.host, &right.host) else {
        assert!(left.host.is_none() && right.host.is_none(), "host data");
        return;
    };
    assert_eq!((a.about, a.trace), (b.about, b.trace));
    assert_eq!(a.symbols, b.symbols, "nodes of symbols");
    assert_eq!(a.ops, b.ops, "nodes of ops");
    assert!(a.nodes.iter().eq(b.nodes.iter()), "nodes");
}

//! What the text form needs of programs beyond the core's own printer and parser.

use rustc_hash::FxHashSet;
use shapetrace_core::entity::{BitSet, Entity, PackedOption};
use shapetrace_core::error::BuildError;
use shapetrace_core::ir::{Op, OpSpec, Operand, Program, ProgramBuilder, Scope, Symbol, SymbolData, Value, ValueKind};

/// Deeper scopes are not indented further.
const DEEPEST_INDENT: usize = 24;

/// How many spaces stand before what is nested so deep.
pub(crate) fn indentation(depth: usize) -> usize {
    2 * depth.min(DEEPEST_INDENT)
}

/// A line of the program's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An op, how many scopes it is in beside the top level, and whether it opens one.
    Op(Op, usize, bool),
    /// The end of a scope whose owner is nested so deep.
    Close(usize),
}

/// The lines of the text between the braces of the program, in order. No recursion.
pub(crate) fn walk(program: &Program) -> impl Iterator<Item = Step> + '_ {
    let mut open = vec![program.scope_range(Scope::TOP)];
    std::iter::from_fn(move || {
        let range = open.last_mut()?;
        let Some(index) = range.next() else {
            open.pop();
            return (!open.is_empty()).then(|| Step::Close(open.len() - 1));
        };
        let op = Op::from_index(index);
        let depth = open.len() - 1;
        let inside = program.op_scope(op);
        if let Some(scope) = inside {
            open.push(program.scope_range(scope));
        }
        Some(Step::Op(op, depth, inside.is_some()))
    })
}

/// The ops in the order of the text.
pub(super) fn text_order(program: &Program) -> impl Iterator<Item = Op> + '_ {
    walk(program).filter_map(|step| match step {
        Step::Op(op, ..) => Some(op),
        Step::Close(_) => None,
    })
}

/// Names for all values, where two values go by one name; none if each has its own.
pub(crate) fn unique_names(program: &Program) -> Option<Vec<String>> {
    let mut taken: FxHashSet<std::borrow::Cow<'_, str>> = FxHashSet::default();
    taken.reserve(program.value_count());
    if program.values().all(|value| taken.insert(program.value_name(value))) {
        return None;
    }
    let mut taken: FxHashSet<String> = program.values().map(|value| program.value_name(value).into_owned()).collect();
    let mut seen = FxHashSet::default();
    let mut next = rustc_hash::FxHashMap::default();
    let mut names = Vec::with_capacity(program.value_count());
    for value in program.values() {
        let name = program.value_name(value).into_owned();
        if seen.insert(name.clone()) {
            names.push(name);
            continue;
        }
        let count = next.entry(name.clone()).or_insert(0_usize);
        names.push(loop {
            *count += 1;
            let other = format!("{name}.{count}");
            if taken.insert(other.clone()) {
                break other;
            }
        });
    }
    Some(names)
}

/// The values that the text of the program mentions.
pub(super) fn mentioned_values(program: &Program) -> BitSet {
    let mut mentioned = BitSet::default();
    mentioned.reset(program.value_count());
    for &value in program.inputs().iter().chain(program.outputs()).chain(program.pinned()) {
        mentioned.insert(value.index());
    }
    for op in program.ops() {
        for value in program.operand_values(op).chain(program.result_values(op)) {
            mentioned.insert(value.index());
        }
    }
    // A number is mentioned in the shape of a tensor that is mentioned; one for each dimension.
    let mut mentions: Vec<_> =
        program.shape_mentions().iter().filter(|mention| program.value_kind(mention.number).is_number()).collect();
    mentions.sort_unstable();
    mentions.dedup_by_key(|mention| (mention.tensor, mention.position));
    for mention in mentions {
        if program.value_kind(mention.tensor) == ValueKind::Tensor && mentioned.contains(mention.tensor.index()) {
            mentioned.insert(mention.number.index());
        }
    }
    mentioned
}

/// The same program with other symbols: `symbols`, and for each op which of them it applies.
pub(super) fn with_symbols(
    program: &Program,
    symbols: Vec<SymbolData>,
    op_symbols: &[Symbol],
) -> Result<Program, BuildError> {
    let mut builder = ProgramBuilder::default();
    for symbol in symbols {
        builder.symbol(symbol)?;
    }
    for value in program.values() {
        builder.value(program.value_kind(value))?;
        if let Some(hint) = program.value_hint(value) {
            builder.hint(value, hint)?;
        }
    }
    program.inputs().iter().try_for_each(|&value| builder.input(value))?;
    program.outputs().iter().try_for_each(|&value| builder.output(value))?;
    program.pinned().iter().try_for_each(|&value| builder.pin(value))?;
    for mention in program.shape_mentions() {
        builder.shape_mention(mention.tensor, mention.position, mention.number)?;
    }
    let mut operands: Vec<Operand> = Vec::new();
    for scope in program.scopes() {
        match program.scope_owner(scope) {
            None => builder.open_top_scope()?,
            Some(owner) => builder.open_scope(owner)?,
        };
        for op in program.scope_ops(scope) {
            operands.clear();
            for &operand in program.operands(op) {
                operands.push(match operand.constant() {
                    Some(constant) => builder.constant(program.constant(constant))?.into(),
                    None => operand,
                });
            }
            let results: &[PackedOption<Value>] = program.results(op);
            let symbol = op_symbols[op.index()];
            builder.op(&OpSpec { symbol, flags: program.flags(op), operands: &operands, results })?;
        }
    }
    let mut rebuilt = builder.finish()?;
    rebuilt.name_values(program.values().map(|value| program.value_name(value).into_owned()).collect());
    Ok(rebuilt)
}

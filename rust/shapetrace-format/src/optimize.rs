//! Optimizing a trace file: the edit list carried out on the program and on the host's data.
//!
//! The host's data follows the same rules as the host's objects do when a live trace is optimized:
//! an op that did not change keeps its nodes; in an op that did, values go by their new names,
//! result slots that are no longer written hold a literal, and rewritten arithmetic gets the
//! symbol of the primitive. The signature of the trace stays as it is.

use rustc_hash::{FxHashMap, FxHashSet};
use shapetrace_core::entity::{Entity, PackedOption};
use shapetrace_core::ir::{
    apply_with_ops, Applied, EditList, Number, NumberType, Op, Operand, Program, Rewrite, Scope, SymbolFlags, Value,
};
use shapetrace_core::passes::{Context, Level, Options};

use crate::model::{HostData, HostOp, Node, NodeId, Nodes, TraceFile};
use crate::FormatError;

/// What takes the place of a proxy, if anything does.
type Exchange<'f, W> = dyn FnMut(&mut W, NodeId, PackedOption<Value>) -> Result<Option<NodeId>, FormatError> + 'f;

/// What is done with a file unless somebody asks for something else; thunder has an operation for
/// Python's floor division.
pub const DEFAULT_OPTIONS: Options = Options { keep_random: false, keep_shape_numbers: false, floor_division: true };

/// Whether nothing says which values of a program are needed: no return, no outputs, but ops.
pub fn lacks_return(program: &Program) -> bool {
    let is_return = |op| program.symbol_flags(op).contains(SymbolFlags::RETURN);
    program.op_count() > 0 && program.outputs().is_empty() && !program.scope_ops(Scope::TOP).any(is_return)
}

/// Optimizes a file. Linear in its size; no recursion.
///
/// The edit list of the run is left in `context`.
///
/// # Errors
/// [`FormatError::TooLarge`] if the nodes of the answer are more than a file can hold.
pub fn optimize(
    file: &TraceFile,
    context: &mut Context,
    level: Level,
    options: &Options,
) -> Result<TraceFile, FormatError> {
    let program = &file.program;
    match &file.host {
        None => {
            let edits = context.run(program, level, options);
            let Applied { mut program, .. } = apply_with_ops(program, edits);
            program.renumber_symbols();
            Ok(TraceFile { program, host: None })
        }
        Some(host) => {
            let mut equal = |a: Op, b: Op| equal_ops(program, host, a, b);
            match level {
                Level::Compat => context.run_with(&as_the_host_reads(program, host), level, options, &mut equal),
                Level::Full => context.run_with(program, level, options, &mut equal),
            };
            apply(program, host, context.edits())
        }
    }
}

/// The program without the operands that only a collection among the arguments holds: the host's
/// own pass does not look into collections.
fn as_the_host_reads(program: &Program, host: &HostData) -> Program {
    let mut program = program.clone();
    let mut mentioned: FxHashSet<Value> = FxHashSet::default();
    let mut current = None;
    program.retain_operands(|op, operand| {
        if current != Some(op) {
            current = Some(op);
            mentioned.clear();
            let host_op = &host.ops[op.index()];
            for id in [host_op.args, host_op.kwargs] {
                host.nodes.proxies(id, |_, value| mentioned.extend(value.get()));
            }
        }
        operand.value().is_none_or(|value| mentioned.contains(&value))
    });
    program
}

fn apply(before: &Program, host: &HostData, edits: &EditList) -> Result<TraceFile, FormatError> {
    let Applied { mut program, ops } = apply_with_ops(before, edits);
    let mut writer = Writer {
        program: before,
        edits,
        nodes: host.nodes.clone(),
        proxy_of_value: first_proxies(before, host),
        renamed: FxHashMap::default(),
        reshaped: FxHashMap::default(),
    };
    let mut host_ops = vec![None; program.op_count()];
    for op in before.ops() {
        if let Some(after) = ops[op.index()].get() {
            host_ops[after.index()] = Some(writer.op(op, &host.ops[op.index()])?);
        }
    }
    let first_new = before.symbols().len();
    let mut symbols = host.symbols.clone();
    for symbol in &program.symbols()[first_new..] {
        symbols.push(writer.primitive(&symbol.name)?);
    }
    let symbols = program.renumber_symbols().into_iter().map(|old| symbols[old.index()]).collect();
    let ops = host_ops.into_iter().map(|op| op.expect("every op came from one")).collect();
    let host = HostData { nodes: writer.nodes, about: host.about, trace: host.trace, symbols, ops };
    Ok(TraceFile { program, host: Some(host.without_unused_nodes()?) })
}

/// The first proxy of each value, in the order of the ops: the one that the others are replaced by.
fn first_proxies(program: &Program, host: &HostData) -> Vec<PackedOption<NodeId>> {
    let mut first = vec![PackedOption::NONE; program.value_count()];
    for (id, node) in host.nodes.iter() {
        if let Node::Proxy(value, _) = node {
            if let Some(value) = value.get() {
                if first[value.index()].is_none() {
                    first[value.index()] = id.into();
                }
            }
        }
    }
    first
}

struct Writer<'a> {
    program: &'a Program,
    edits: &'a EditList,
    nodes: Nodes,
    proxy_of_value: Vec<PackedOption<NodeId>>,
    /// What a node is where values go by their new names.
    renamed: FxHashMap<NodeId, NodeId>,
    /// The proxies of tensors whose shape mentions a number that was replaced.
    reshaped: FxHashMap<NodeId, NodeId>,
}

impl Writer<'_> {
    fn op(&mut self, op: Op, before: &HostOp) -> Result<HostOp, FormatError> {
        if !self.edits.is_changed(op) {
            return Ok(*before);
        }
        let mut after = *before;
        if let Some(rewrite) = self.edits.rewrite(op) {
            after.args = self.rewritten(rewrite)?;
            after.kwargs = self.nodes.add(Node::Dict([].into()))?;
        } else {
            after.args = self.rename(before.args)?;
            after.kwargs = self.rename(before.kwargs)?;
        }
        after.output = self.output(op, before.output)?;
        Ok(after)
    }

    fn rewritten(&mut self, rewrite: &Rewrite) -> Result<NodeId, FormatError> {
        let operands =
            rewrite.operands.iter().map(|&operand| self.operand(operand)).collect::<Result<Vec<_>, FormatError>>()?;
        self.nodes.add(Node::Tuple(operands.into()))
    }

    /// How the host finds one of its primitives, by the name that a rewrite gives it.
    fn primitive(&mut self, name: &str) -> Result<NodeId, FormatError> {
        let name = name.rsplit_once('.').map_or(name, |(_, name)| name);
        let parts = ["symbol", "thunder.core.prims", name].map(|part| self.nodes.text(part));
        let [kind, module, name] = parts;
        self.nodes.add(Node::Object([kind?, module?, name?].into()))
    }

    fn operand(&mut self, operand: Operand) -> Result<NodeId, FormatError> {
        if let Some(value) = operand.value() {
            return match self.proxy_of_value[value.index()].get() {
                Some(proxy) => Ok(proxy),
                None => self.nodes.add(Node::None),
            };
        }
        let number = operand.constant().map(|constant| self.edits.literal_of(constant));
        self.literal(number)
    }

    fn literal(&mut self, number: Option<Number>) -> Result<NodeId, FormatError> {
        let node = match number {
            Some(Number::Bool(flag)) => Node::Bool(flag),
            Some(Number::Int(int)) => Node::Int(int),
            Some(Number::Float(float)) => Node::Float(float.to_bits()),
            Some(Number::Type(number_type)) => {
                let name = match number_type {
                    NumberType::Bool => "bool",
                    NumberType::Int => "int",
                    NumberType::Float => "float",
                    NumberType::Other => "complex",
                };
                let [kind, module, name] = ["type", "builtins", name].map(|part| self.nodes.text(part));
                Node::Object([kind?, module?, name?].into())
            }
            Some(Number::Opaque(_)) | None => Node::None,
        };
        self.nodes.add(node)
    }

    /// A structure with all values by their new names.
    fn rename(&mut self, root: NodeId) -> Result<NodeId, FormatError> {
        if !self.edits.has_replacements() {
            return Ok(root);
        }
        let mut memory = std::mem::take(&mut self.renamed);
        let result = self.map(root, &mut memory, &mut |writer, id, value| {
            Ok(if writer.exchanges(value) { Some(writer.renamed_proxy(id, value)?) } else { None })
        });
        self.renamed = memory;
        result
    }

    fn exchanges(&self, value: PackedOption<Value>) -> bool {
        value.get().is_some_and(|value| self.edits.replacement(value).is_some() || self.edits.is_reshaped(value))
    }

    fn renamed_proxy(&mut self, id: NodeId, value: PackedOption<Value>) -> Result<NodeId, FormatError> {
        match value.get() {
            Some(value) => match self.edits.replacement(value) {
                Some(operand) => self.operand(operand),
                None => self.reshape(id),
            },
            None => Ok(id),
        }
    }

    /// A tensor of the same name whose shape speaks of the numbers that are left.
    fn reshape(&mut self, id: NodeId) -> Result<NodeId, FormatError> {
        if let Some(&made) = self.reshaped.get(&id) {
            return Ok(made);
        }
        let Node::Proxy(value, parts) = self.nodes.get(id).clone() else { return Ok(id) };
        // Numbers alone are exchanged: a tensor inside a proxy is none of its dimensions.
        let mut memory = FxHashMap::default();
        let mut new_parts = Vec::with_capacity(parts.len());
        for part in parts {
            new_parts.push(self.map(part, &mut memory, &mut |writer, _, value| {
                let number = value.get().filter(|&value| writer.program.value_kind(value).is_number());
                number
                    .and_then(|value| writer.edits.replacement(value))
                    .map(|operand| writer.operand(operand))
                    .transpose()
            })?);
        }
        let made = self.nodes.push(Node::Proxy(value, new_parts.into()))?;
        self.reshaped.insert(id, made);
        Ok(made)
    }

    /// The places of the parts of a node in the order in which the program has what is in them:
    /// dictionaries by their sorted keys if these are texts, all else as it is.
    fn reading_order(&self, node: &Node) -> Vec<usize> {
        let mut places: Vec<usize> = (0..node.children().len()).collect();
        let Node::Dict(parts) = node else { return places };
        let keys: Option<Vec<&str>> = parts.iter().step_by(2).map(|&key| self.nodes.as_text(key)).collect();
        if let Some(keys) = keys {
            // Both places of a pair stay together: sorting is stable.
            places.sort_by_key(|place| keys[place / 2]);
        }
        places
    }

    /// The output with slots that are no longer written as literals.
    fn output(&mut self, op: Op, root: NodeId) -> Result<NodeId, FormatError> {
        let slots = self.program.result_range(op);
        if !slots.clone().any(|slot| self.edits.is_dropped(slot)) {
            return self.rename(root);
        }
        // Which of its slots each value is dropped from: the slots of one op name a value once,
        // unless the op makes it twice, and then the first is what stays.
        let mut dropped: FxHashMap<Value, Vec<bool>> = FxHashMap::default();
        for (slot, result) in slots.zip(self.program.results(op)) {
            if let Some(value) = result.get() {
                dropped.entry(value).or_default().push(self.edits.is_dropped(slot));
            }
        }
        let mut seen: FxHashMap<Value, usize> = FxHashMap::default();
        // Every mention is one of its own here, so nothing is remembered: `forget` empties it.
        let mut stack = vec![(root, false)];
        let mut done: Vec<NodeId> = Vec::new();
        while let Some((id, ready)) = stack.pop() {
            match self.nodes.get(id).clone() {
                Node::Proxy(value, _) => {
                    let place = value.get().map(|value| {
                        let count = seen.entry(value).or_insert(0);
                        *count += 1;
                        (value, *count - 1)
                    });
                    let is_dropped = place.is_some_and(|(value, count)| {
                        dropped.get(&value).is_some_and(|flags| flags.get(count) == Some(&true))
                    });
                    let node = if is_dropped {
                        let number = value.get().filter(|&value| self.program.value_kind(value).is_number());
                        let hint = number.and_then(|value| self.program.value_hint(value));
                        self.literal(hint)?
                    } else {
                        self.renamed_proxy(id, value)?
                    };
                    done.push(node);
                }
                _ if self.nodes.elements(id).is_empty() => done.push(id),
                node if ready => {
                    let visited = done.split_off(done.len() - node.children().len());
                    let mut children = visited.clone();
                    for (child, place) in visited.into_iter().zip(self.reading_order(&node)) {
                        children[place] = child;
                    }
                    let same = children == node.children();
                    done.push(if same { id } else { self.nodes.add(node.with_children(children.into()))? });
                }
                node => {
                    stack.push((id, true));
                    let children = node.children();
                    stack.extend(self.reading_order(&node).into_iter().rev().map(|place| (children[place], false)));
                }
            }
        }
        Ok(done.pop().expect("the root"))
    }

    /// A structure with some of its proxies exchanged. `memory` is what each node has become.
    fn map(
        &mut self,
        root: NodeId,
        memory: &mut FxHashMap<NodeId, NodeId>,
        exchange: &mut Exchange<'_, Self>,
    ) -> Result<NodeId, FormatError> {
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            if memory.contains_key(&id) {
                stack.pop();
                continue;
            }
            let after = match self.nodes.get(id).clone() {
                Node::Proxy(value, _) => exchange(self, id, value)?.unwrap_or(id),
                node => {
                    let before = stack.len();
                    let elements = self.nodes.elements(id);
                    stack.extend(elements.iter().filter(|child| !memory.contains_key(child)));
                    if stack.len() > before {
                        continue;
                    }
                    let children: Vec<_> = elements.iter().map(|child| memory[child]).collect();
                    if children == elements {
                        id
                    } else {
                        self.nodes.add(node.with_children(children.into()))?
                    }
                }
            };
            memory.insert(id, after);
            stack.pop();
        }
        Ok(memory[&root])
    }
}

/// Whether thunder takes two ops for equal: symbol, arguments and output, proxies by name; never
/// with keyword arguments.
fn equal_ops(program: &Program, host: &HostData, a: Op, b: Op) -> bool {
    if a == b {
        return true;
    }
    let (op_a, op_b) = (&host.ops[a.index()], &host.ops[b.index()]);
    program.symbol_id(a) == program.symbol_id(b)
        && host.nodes.get(op_a.kwargs).children().is_empty()
        && host.nodes.get(op_b.kwargs).children().is_empty()
        && equal_nodes(&host.nodes, op_a.args, op_b.args)
        && (program.symbol_flags(a).contains(SymbolFlags::RETURN) || equal_nodes(&host.nodes, op_a.output, op_b.output))
}

/// Equality as Python has it: `1`, `1.0` and `True` are one number.
fn equal_nodes(nodes: &Nodes, a: NodeId, b: NodeId) -> bool {
    let mut stack = vec![(a, b)];
    while let Some((a, b)) = stack.pop() {
        if a == b {
            continue;
        }
        match (nodes.get(a), nodes.get(b)) {
            (Node::Proxy(value_a, parts_a), Node::Proxy(value_b, parts_b)) => {
                // Two objects of one name; without a value of the program there is no name to go by.
                if value_a != value_b || (value_a.is_none() && parts_a != parts_b) {
                    return false;
                }
            }
            (Node::Dict(parts_a), Node::Dict(parts_b)) => {
                // In any order.
                let values: FxHashMap<NodeId, NodeId> =
                    parts_b.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
                if parts_a.len() != parts_b.len() {
                    return false;
                }
                for pair in parts_a.chunks_exact(2) {
                    let Some(&value) = values.get(&pair[0]) else { return false };
                    stack.push((pair[1], value));
                }
            }
            (a, b) if a.children().is_empty() && b.children().is_empty() => {
                if !equal_leaves(a, b) {
                    return false;
                }
            }
            (a, b) => {
                if std::mem::discriminant(a) != std::mem::discriminant(b) || a.children().len() != b.children().len() {
                    return false;
                }
                stack.extend(a.children().iter().copied().zip(b.children().iter().copied()));
            }
        }
    }
    true
}

fn equal_leaves(a: &Node, b: &Node) -> bool {
    let as_int = |node: &Node| match node {
        Node::Bool(flag) => Some(i64::from(*flag)),
        Node::Int(int) => Some(*int),
        _ => None,
    };
    #[allow(clippy::float_cmp)] // equality is what is asked for
    match (a, b) {
        (Node::Float(a), Node::Float(b)) => a == b || f64::from_bits(*a) == f64::from_bits(*b),
        (Node::Float(float), other) | (other, Node::Float(float)) => {
            let float = f64::from_bits(*float);
            // Exact both ways: the integer nearest to the float, and back.
            #[allow(clippy::cast_precision_loss)]
            as_int(other).is_some_and(|int| float as i64 == int && int as f64 == float)
        }
        (a, b) => match (as_int(a), as_int(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

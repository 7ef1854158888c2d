//! The sections of the host's data: `NODE` and `HOST`.

use rustc_hash::FxHashMap;
use shapetrace_core::entity::{Entity, PackedOption};
use shapetrace_core::ir::{Program, Value};

use super::codec::{end_columns, near, push_section, Budget, Column, Cursor, Unused};
use super::error::{ReadError, ReadErrorKind, Tag};
use super::program::read_float;
use super::texts::{Expected, TextReader, TextWriter};
use crate::{HostData, HostOp, Node, NodeId, Nodes};

pub(super) const NODES: Tag = Tag(*b"NODE");
pub(super) const HOST: Tag = Tag(*b"HOST");

/// Declares the kinds of nodes by their codes.
macro_rules! kinds {
    ($($name:ident = $code:literal,)*) => { $(const $name: u64 = $code;)* };
}

kinds! {
    NONE = 0,
    FALSE = 1,
    TRUE = 2,
    INT = 3,
    BIG_INT = 4,
    FLOAT = 5,
    TEXT = 6,
    BYTES = 7,
    TUPLE = 8,
    LIST = 9,
    DICT = 10,
    OBJECT = 11,
    PROXY = 12,
}

fn kind(node: &Node) -> u64 {
    match node {
        Node::None => NONE,
        Node::Bool(false) => FALSE,
        Node::Bool(true) => TRUE,
        Node::Int(_) => INT,
        Node::BigInt(_) => BIG_INT,
        Node::Float(_) => FLOAT,
        Node::Text(_) => TEXT,
        Node::Bytes(_) => BYTES,
        Node::Tuple(_) => TUPLE,
        Node::List(_) => LIST,
        Node::Dict(_) => DICT,
        Node::Object(_) => OBJECT,
        Node::Proxy(..) => PROXY,
    }
}

/// Whether nodes of a kind have a number of parts.
fn has_parts(kind: u64) -> bool {
    (TUPLE..=PROXY).contains(&kind)
}

/// Whether the first part of nodes of a kind belongs to their shape: it says what an object is.
fn has_head(kind: u64) -> bool {
    (DICT..=PROXY).contains(&kind)
}

// Codes of parts.
/// The last node that is no part of another so far; the last such part of a node takes the last.
const NEW: u64 = 0;
/// What the node of this shape before has there.
const SAME: u64 = 1;
/// A node that is not a proxy and was not referred to by a number before: how far it is back.
const FAR: u64 = 2;
/// From here on: even, how many proxies have come since; odd, the how manieth of the `FAR` ones.
const NUMBERED: u64 = 3;

// Codes of what belongs to an op.
/// As the op before.
const AS_BEFORE: u64 = 0;
/// As the op that owns the scope.
const AS_OWNER: u64 = 1;
/// A node by its number.
const BY_NUMBER: u64 = 2;
/// From here on: how far it is, among the loose nodes, from the next one after the last that was not
/// coded so.
const NEXT: u64 = 3;

fn columns<const N: usize>() -> [Column; N] {
    std::array::from_fn(|_| Column::default())
}

/// What nodes have in common: kind, number of parts, and the first part if it belongs to that.
type Shape = (u64, usize, Option<NodeId>);

fn shape(node: &Node) -> Shape {
    let kind = kind(node);
    let children = node.children();
    let head = if has_head(kind) { children.first().copied() } else { None };
    (kind, children.len(), head)
}

pub(super) fn write<'a>(host: &'a HostData, program: &Program, texts: &mut TextWriter<'a>, payload: &mut Vec<u8>) {
    let loose = write_nodes(&host.nodes, texts, payload);
    write_host(host, program, &loose, payload);
}

/// The host's data of a file.
pub(super) fn read(
    nodes: Cursor<'_>,
    host: Cursor<'_>,
    program: &Program,
    texts: &mut TextReader,
    budget: &mut Budget,
) -> Result<HostData, ReadError> {
    let (nodes, loose) = read_nodes(nodes, program, texts, budget)?;
    read_host(host, program, nodes, &loose)
}

/// Writes the nodes. Returns the loose ones: those that were not taken as [`NEW`] parts.
fn write_nodes<'a>(nodes: &'a Nodes, texts: &mut TextWriter<'a>, payload: &mut Vec<u8>) -> Vec<NodeId> {
    let [mut head, mut shapes, mut kinds, mut counts, mut parts, mut far] = columns();
    let [mut integers, mut names, mut floats, mut lengths, mut bytes, mut values] = columns();
    head.size(nodes.len());
    let mut known: FxHashMap<Shape, usize> = FxHashMap::default();
    // The last node of each shape.
    let mut last: Vec<NodeId> = Vec::new();
    // By node: a proxy's number among proxies, another node's among those that were far.
    let mut numbers = vec![u32::MAX; nodes.len()];
    let (mut proxies, mut far_ones) = (0_u32, 0_u32);
    let mut loose: Vec<NodeId> = Vec::new();
    let mut is_new: Vec<bool> = Vec::new();
    let mut expected = Expected::default();
    let mut expected_value = 0;
    for (id, node) in nodes.iter() {
        let shape = shape(node);
        let number = *known.entry(shape).or_insert(last.len());
        let mut children = node.children();
        let mut before: &[NodeId] = &[];
        if number == last.len() {
            shapes.uint(0);
            kinds.uint(shape.0);
            if has_parts(shape.0) {
                counts.size(shape.1);
            }
            last.push(id);
        } else {
            shapes.size(number + 1);
            let implied = usize::from(shape.2.is_some());
            children = &children[implied..];
            before = &nodes.get(last[number]).children()[implied..];
            last[number] = id;
        }
        match node {
            Node::Int(number) => integers.int(*number),
            Node::BigInt(text) | Node::Text(text) => names.uint(texts.code(text, &mut expected)),
            Node::Float(bits) => floats.raw(&bits.to_le_bytes()),
            Node::Bytes(content) => {
                lengths.size(content.len());
                bytes.raw(content);
            }
            Node::Proxy(value, _) => values.uint(value.get().map_or(0, |value| {
                let code = 1 + near(value.index(), expected_value);
                expected_value = value.index() + 1;
                code
            })),
            _ => {}
        }
        is_new.clear();
        is_new.resize(children.len(), false);
        for (child, is_new) in children.iter().zip(&mut is_new).rev() {
            if loose.last() == Some(child) {
                loose.pop();
                *is_new = true;
            }
        }
        for (index, &child) in children.iter().enumerate() {
            let number = &mut numbers[child.index()];
            parts.uint(if is_new[index] {
                NEW
            } else if before.get(index) == Some(&child) {
                SAME
            } else if matches!(nodes.get(child), Node::Proxy(..)) {
                NUMBERED + 1 + 2 * u64::from(proxies - 1 - *number)
            } else if *number == u32::MAX {
                *number = far_ones;
                far_ones += 1;
                far.size(id.index() - 1 - child.index());
                FAR
            } else {
                NUMBERED + 2 * u64::from(*number)
            });
        }
        if shape.0 == PROXY {
            numbers[id.index()] = proxies;
            proxies += 1;
        }
        loose.push(id);
    }
    let columns = [head, shapes, kinds, counts, parts, far, integers, names, floats, lengths, bytes, values];
    push_section(payload, NODES, &columns);
    loose
}

/// What was read of a shape.
struct Known {
    kind: u64,
    count: usize,
    /// How many parts follow from the shape: none or one.
    implied: usize,
    last: NodeId,
}

fn read_nodes(
    section: Cursor<'_>,
    program: &Program,
    texts: &mut TextReader,
    budget: &mut Budget,
) -> Result<(Nodes, Vec<NodeId>), ReadError> {
    let [mut head, mut shapes, mut kinds, mut counts, mut parts, mut far, rest @ ..] = section.columns::<12>()?;
    let [mut integers, mut names, mut floats, mut lengths, mut bytes, mut values] = rest;
    let count = head.count("nodes", &shapes, budget)?;
    let mut nodes = Nodes::default();
    let mut known: Vec<Known> = Vec::new();
    let (mut proxies, mut far_ones, mut loose): (Vec<NodeId>, Vec<NodeId>, Vec<NodeId>) = Default::default();
    let mut children: Vec<NodeId> = Vec::new();
    // Where in `children` those are that were not taken from the loose nodes yet.
    let mut new: Vec<usize> = Vec::new();
    let mut expected = Expected::default();
    let mut expected_value = 0;
    for index in 0..count {
        let id = NodeId::from_index(index);
        let (number, is_known) = match shapes.index("shape", known.len() + 1)? {
            0 => {
                let kind = kinds.uint()?;
                if kind > PROXY {
                    return Err(kinds.error(ReadErrorKind::Code { what: "kind of node known here", code: kind }));
                }
                let count = if has_parts(kind) { counts.count_within("parts", &parts)? } else { 0 };
                known.push(Known { kind, count, implied: usize::from(has_head(kind) && count > 0), last: id });
                (known.len() - 1, false)
            }
            code => (code - 1, true),
        };
        let shape = &mut known[number];
        children.clear();
        new.clear();
        let before = if is_known { nodes.get(shape.last).children() } else { &[] };
        if is_known {
            children.extend_from_slice(&before[..shape.implied]);
        }
        let coded = shape.count - children.len();
        if coded > parts.left() {
            let (count, left) = (coded as u64, parts.left() as u64);
            return Err(parts.error(ReadErrorKind::Count { what: "parts", count, left }));
        }
        for _ in 0..coded {
            let at = children.len();
            let child = match parts.uint()? {
                NEW => {
                    new.push(at);
                    id
                }
                SAME => match before.get(at) {
                    Some(&child) => child,
                    None => return Err(parts.malformed("no node of this shape came before")),
                },
                FAR => {
                    let back = far.index("node as far back", index)?;
                    let child = NodeId::from_index(index - 1 - back);
                    far_ones.push(child);
                    child
                }
                code => {
                    let number = (code - NUMBERED) / 2;
                    let (table, position) = if code % 2 == 1 {
                        (&far_ones, Some(number))
                    } else {
                        (&proxies, (proxies.len() as u64).checked_sub(1 + number))
                    };
                    let position = position.and_then(|position| usize::try_from(position).ok());
                    let Some(&child) = position.and_then(|position| table.get(position)) else {
                        let count = table.len() as u64;
                        let kind = ReadErrorKind::Reference { what: "node", index: number as i64, count };
                        return Err(parts.error(kind));
                    };
                    child
                }
            };
            children.push(child);
        }
        for &position in new.iter().rev() {
            let Some(child) = loose.pop() else {
                return Err(parts.malformed("all nodes so far are parts of others already"));
            };
            children[position] = child;
        }
        let kind = shape.kind;
        shape.last = id;
        let parts_of = || children.as_slice().into();
        let node = match kind {
            NONE => Node::None,
            FALSE => Node::Bool(false),
            TRUE => Node::Bool(true),
            INT => Node::Int(integers.int()?),
            TEXT | BIG_INT => {
                let code = names.uint()?;
                let text = texts.text(code, &mut expected, &names, budget)?.into();
                if kind == TEXT {
                    Node::Text(text)
                } else {
                    Node::BigInt(text)
                }
            }
            FLOAT => Node::Float(read_float(&mut floats)?),
            BYTES => Node::Bytes(bytes.raw(lengths.uint()?, "the bytes")?.into()),
            TUPLE => Node::Tuple(parts_of()),
            LIST => Node::List(parts_of()),
            DICT => Node::Dict(parts_of()),
            OBJECT => Node::Object(parts_of()),
            _ => {
                let value = match values.uint()? {
                    0 => PackedOption::NONE,
                    code => {
                        let value = values.near_of(code - 1, "value", expected_value, program.value_count())?;
                        expected_value = value + 1;
                        Value::from_index(value).into()
                    }
                };
                proxies.push(id);
                Node::Proxy(value, parts_of())
            }
        };
        // Equal nodes that are there twice stay two.
        nodes.push(node).map_err(|error| shapes.error(error.into()))?;
        loose.push(id);
    }
    end_columns(&[head, shapes, kinds, counts, parts, far, integers, names, floats, lengths, bytes, values])?;
    Ok((nodes, loose))
}

/// What belongs to an op, in the order of the columns.
fn parts_of_op(op: &HostOp) -> [NodeId; 4] {
    [op.args, op.kwargs, op.output, op.details]
}

fn write_host(host: &HostData, program: &Program, loose: &[NodeId], payload: &mut Vec<u8>) {
    let [mut roots, mut symbols, mut by_number] = columns();
    let mut of_ops: [Column; 4] = columns();
    roots.size(host.about.index());
    roots.size(host.trace.index());
    let mut expected = 0;
    for symbol in &host.symbols {
        symbols.near(symbol.index(), expected);
        expected = symbol.index() + 1;
    }
    let mut ranks = vec![u32::MAX; host.nodes.len()];
    for (rank, id) in loose.iter().enumerate() {
        ranks[id.index()] = rank as u32;
    }
    let mut unused = Unused::new(loose.len());
    let (mut before, mut next) = (None, 0);
    for scope in program.scopes() {
        let owner = program.scope_owner(scope).map(|owner| parts_of_op(&host.ops[owner.index()]));
        for op in program.scope_ops(scope) {
            let parts = parts_of_op(&host.ops[op.index()]);
            for (index, (column, &part)) in of_ops.iter_mut().zip(&parts).enumerate() {
                let is = |other: Option<[NodeId; 4]>| other.is_some_and(|other| other[index] == part);
                column.uint(match ranks[part.index()] {
                    _ if is(before) => AS_BEFORE,
                    _ if is(owner) => AS_OWNER,
                    u32::MAX => {
                        by_number.size(part.index());
                        BY_NUMBER
                    }
                    rank => {
                        let code = NEXT + near(rank as usize, next);
                        next = unused.take(rank as usize);
                        code
                    }
                });
            }
            before = Some(parts);
        }
    }
    let [args, kwargs, outputs, details] = of_ops;
    push_section(payload, HOST, &[roots, symbols, args, kwargs, outputs, details, by_number]);
}

fn read_host(section: Cursor<'_>, program: &Program, nodes: Nodes, loose: &[NodeId]) -> Result<HostData, ReadError> {
    let [mut roots, mut symbols, args, kwargs, outputs, details, mut by_number] = section.columns()?;
    let mut of_ops = [args, kwargs, outputs, details];
    let node = |column: &mut Cursor<'_>| column.index("node", nodes.len()).map(NodeId::from_index);
    let (about, trace) = (node(&mut roots)?, node(&mut roots)?);
    let mut host = HostData { nodes: Nodes::default(), about, trace, symbols: Vec::new(), ops: Vec::new() };
    let mut expected = 0;
    for _ in program.symbols() {
        let symbol = symbols.near("node", expected, nodes.len())?;
        expected = symbol + 1;
        host.symbols.push(NodeId::from_index(symbol));
    }
    let mut unused = Unused::new(loose.len());
    let (mut before, mut next) = (None, 0);
    for scope in program.scopes() {
        let owner = program.scope_owner(scope).map(|owner| parts_of_op(&host.ops[owner.index()]));
        for _ in program.scope_ops(scope) {
            let mut parts = [about; 4];
            for (index, (column, part)) in of_ops.iter_mut().zip(&mut parts).enumerate() {
                let other = |other: Option<[NodeId; 4]>, column: &Cursor<'_>| match other {
                    Some(other) => Ok(other[index]),
                    None => Err(column.malformed("there is no op before, or no op that owns the scope")),
                };
                *part = match column.uint()? {
                    AS_BEFORE => other(before, column)?,
                    AS_OWNER => other(owner, column)?,
                    BY_NUMBER => node(&mut by_number)?,
                    code => {
                        let rank = column.near_of(code - NEXT, "loose node", next, loose.len())?;
                        next = unused.take(rank);
                        loose[rank]
                    }
                };
            }
            let [args, kwargs, output, details] = parts;
            host.ops.push(HostOp { args, kwargs, output, details });
            before = Some(parts);
        }
    }
    let [args, kwargs, outputs, details] = of_ops;
    end_columns(&[roots, symbols, args, kwargs, outputs, details, by_number])?;
    host.nodes = nodes;
    Ok(host)
}

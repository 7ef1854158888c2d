//! Global value numbering of numbers (Cocke and Schwartz), hash-consed.
//!
//! Every number of the program gets a *node*: an input, a literal, dimension `k` of a tensor, or
//! an operation on nodes. Names are unique in a trace, so equal nodes are equal numbers in every
//! scope, and facts found in one scope (a dimension is never negative) hold in all.

use rustc_hash::FxHashMap;

use super::dimensions::Dimensions;
use super::rules::{self, Answer, Known};
use crate::entity::{entity, BitSet, Entity, PackedOption};
use crate::ir::{Number, NumberType, ScalarOp, Value};

entity! {
    /// One number, whatever its names.
    pub(super) Node, "n"
}

/// How a number comes about. Literals and operations with equal keys are one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A number that the program takes, or that comes from an op that is not understood.
    Leaf,
    Literal(Number),
    /// Which one is in a map of its own.
    Dimension,
    Apply(ScalarOp, Node, PackedOption<Node>),
}

#[derive(Clone, Copy, Debug)]
struct NodeData {
    key: Key,
    number_type: NumberType,
    nonnegative: bool,
    hint: Option<Number>,
    /// The operation that was the first to have this node as its newest operand.
    first_use: PackedOption<Node>,
}

/// The nodes, and which node each value is.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    nodes: Vec<NodeData>,
    /// The nodes of literals and of operations, but for those that are the first use of a node: most
    /// nodes have one use, and it is found without asking for other memory than the node's own. An
    /// input has one name, which has its node.
    table: FxHashMap<Key, Node>,
    dimensions: Dimensions<Node>,
    node_of: Vec<PackedOption<Node>>,
    /// The values that have a node.
    named: BitSet,
    /// Some number was found to be two things: its definitions differ in more than which dimension it
    /// is, it was read before it was defined, or what is known of it contradicts a definition.
    is_ambiguous: bool,
    /// Whether to recognise floor division, for which the host has an operation.
    floor_division: bool,
}

impl Numbering {
    pub(super) fn reset(&mut self, values: usize, floor_division: bool) {
        self.nodes.clear();
        self.table.clear();
        self.dimensions.reset(values);
        self.node_of.clear();
        self.node_of.resize(values, PackedOption::NONE);
        self.named.reset(values);
        self.is_ambiguous = false;
        self.floor_division = floor_division;
    }

    /// Whether a number was found to be two things, so that it depends on their order what it is.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    #[inline]
    pub(super) fn node_of(&self, value: Value) -> Option<Node> {
        self.node_of[value.index()].get()
    }

    /// The values that have a node.
    pub(super) fn named(&self) -> &BitSet {
        &self.named
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn literal(&self, node: Node) -> Option<Number> {
        match self.nodes[node.index()].key {
            Key::Literal(number) => Some(number),
            _ => None,
        }
    }

    /// The operands of a floor division.
    pub(super) fn floor_division_operands(&self, node: Node) -> Option<(Node, Node)> {
        match self.nodes[node.index()].key {
            Key::Apply(ScalarOp::FloorDiv, a, b) => Some((a, b.get()?)),
            _ => None,
        }
    }

    fn known(&self, node: Node) -> Known {
        let data = &self.nodes[node.index()];
        Known { number_type: data.number_type, literal: self.literal(node), nonnegative: data.nonnegative }
    }

    /// The node of a literal or an operation, if it has one.
    fn get(&self, key: Key) -> Option<Node> {
        if let Key::Apply(_, a, b) = key {
            let first = self.nodes[newest(a, b).index()].first_use.get()?;
            if self.nodes[first.index()].key == key {
                return Some(first);
            }
        }
        self.table.get(&key).copied()
    }

    /// Says which node a literal or an operation is that has none yet.
    fn insert(&mut self, key: Key, node: Node) {
        if let Key::Apply(_, a, b) = key {
            let first_use = &mut self.nodes[newest(a, b).index()].first_use;
            // Taken by whatever comes first: where no node is, `get` looks no further.
            if first_use.get().is_none() {
                *first_use = node.into();
                if self.nodes[node.index()].key == key {
                    return;
                }
            }
        }
        self.table.insert(key, node);
    }

    fn intern(&mut self, key: Key, number_type: NumberType, nonnegative: bool) -> Node {
        self.get(key).unwrap_or_else(|| {
            let node = push_node(&mut self.nodes, key, number_type, nonnegative);
            self.insert(key, node);
            node
        })
    }

    pub(super) fn number(&mut self, number: Number) -> Node {
        let nonnegative = number.as_int().is_some_and(|value| value >= 0);
        self.intern(Key::Literal(number), number.number_type(), nonnegative)
    }

    /// The node of a value that is read; a value without one becomes an input, of which `known` tells
    /// the type and the hint.
    #[inline]
    pub(super) fn read(&mut self, value: Value, known: impl FnOnce() -> (NumberType, Option<Number>)) -> Node {
        self.node_of(value).unwrap_or_else(|| {
            let (number_type, hint) = known();
            self.input(value, number_type, hint)
        })
    }

    #[inline(never)]
    fn input(&mut self, value: Value, number_type: NumberType, hint: Option<Number>) -> Node {
        let node = push_node(&mut self.nodes, Key::Leaf, number_type, number_type == NumberType::Bool);
        self.name(value, node, hint);
        node
    }

    /// Binds a value to a dimension of a tensor, which has `width` of them.
    pub(super) fn bind_dimension(&mut self, value: Value, dimension: (Value, u32), width: usize, hint: Option<Number>) {
        if let Some(node) = self.node_of(value) {
            // The number was known before by this name: so is the dimension.
            let there = self.dimensions.get_or_insert_with(dimension, width, || node);
            self.is_ambiguous |= there != node || self.nodes[node.index()].key != Key::Dimension;
            return;
        }
        let nodes = &mut self.nodes;
        let node = self
            .dimensions
            .get_or_insert_with(dimension, width, || push_node(nodes, Key::Dimension, NumberType::Int, true));
        self.bind(value, node, NumberType::Int, hint);
    }

    /// Binds the result of an operation, unless what is known of it contradicts that.
    pub(super) fn bind(&mut self, value: Value, node: Node, number_type: NumberType, hint: Option<Number>) {
        if self.node_of(value).is_some() {
            return;
        }
        let data = &self.nodes[node.index()];
        let plausible = data.number_type == number_type
            && match (hint, data.hint) {
                (Some(said), Some(seen)) => said == seen,
                _ => true,
            };
        if plausible {
            self.name(value, node, hint);
        } else {
            // Never merge on a contradiction: the value stays itself.
            self.is_ambiguous = true;
            self.input(value, number_type, hint);
        }
    }

    fn name(&mut self, value: Value, node: Node, hint: Option<Number>) {
        self.node_of[value.index()] = node.into();
        self.named.insert(value.index());
        let data = &mut self.nodes[node.index()];
        data.hint = data.hint.or(hint);
    }

    /// The node of an operation on nodes, simplified. `known` is the node that the result has
    /// already, from another definition: an operation that is new is that node.
    pub(super) fn apply(
        &mut self,
        op: ScalarOp,
        a: Node,
        b: Option<Node>,
        result: NumberType,
        known: Option<Node>,
    ) -> Node {
        let node = match self.reduce(op, a, b) {
            Reduced::Node(node) => node,
            Reduced::Literal(number) => self.number(number),
            Reduced::Apply(op, a, b) => {
                let key = Key::Apply(op, a, b.into());
                let same_type = |&node: &Node| self.nodes[node.index()].number_type == result;
                if let Some(node) = known.filter(same_type) {
                    self.get(key).unwrap_or_else(|| {
                        self.is_ambiguous = true;
                        self.insert(key, node);
                        node
                    })
                } else {
                    let known_b = b.map_or(self.known(a), |b| self.known(b));
                    let nonnegative = rules::is_nonnegative(op, result, self.known(a), known_b);
                    self.intern(key, result, nonnegative)
                }
            }
        };
        self.is_ambiguous |= known.is_some_and(|known| known != node);
        node
    }

    /// As [`Numbering::apply`], without making a node.
    fn find(&self, op: ScalarOp, a: Node, b: Option<Node>) -> Option<Node> {
        match self.reduce(op, a, b) {
            Reduced::Node(node) => Some(node),
            Reduced::Literal(number) => self.get(Key::Literal(number)),
            Reduced::Apply(op, a, b) => self.get(Key::Apply(op, a, b.into())),
        }
    }

    fn reduce(&self, op: ScalarOp, a: Node, b: Option<Node>) -> Reduced {
        let (op, a, b) = self.canonical(op, a, b);
        match b {
            // Most operations are on two numbers of which nothing is known that a rule could use.
            Some(b) if a != b && self.literal(a).is_none() && self.literal(b).is_none() => {}
            _ => {
                if let Some(reduced) = self.reduce_known(op, a, b) {
                    return reduced;
                }
            }
        }
        if let (ScalarOp::Sub, Some(b)) = (op, b) {
            if let Some((dividend, divisor)) = self.floor_division(a, b) {
                return Reduced::Apply(ScalarOp::FloorDiv, dividend, Some(divisor));
            }
        }
        Reduced::Apply(op, a, b)
    }

    /// What the rules say, and arithmetic on literals.
    fn reduce_known(&self, op: ScalarOp, a: Node, b: Option<Node>) -> Option<Reduced> {
        let known_a = self.known(a);
        let known_b = b.map_or(known_a, |b| self.known(b));
        if let Some(literal_a) = known_a.literal {
            let literal_b = b.map_or(Some(literal_a), |_| known_b.literal);
            if let Some(number) = literal_b.and_then(|literal_b| rules::evaluate(op, literal_a, literal_b)) {
                return Some(Reduced::Literal(number));
            }
        }
        let same = b == Some(a);
        rules::simplify(op, known_a, known_b, same).map(|answer| match answer {
            Answer::Literal(number) => Reduced::Literal(number),
            Answer::First => Reduced::Node(a),
        })
    }

    /// Literals to the right, and otherwise the older node first, where that changes nothing.
    fn canonical(&self, op: ScalarOp, a: Node, b: Option<Node>) -> (ScalarOp, Node, Option<Node>) {
        let Some(second) = b else { return (op, a, b) };
        let exact = |node: Node| matches!(self.nodes[node.index()].number_type, NumberType::Int | NumberType::Bool);
        if !exact(a) || !exact(second) {
            return (op, a, b);
        }
        let literal_first = self.literal(a).is_some() && self.literal(second).is_none();
        let literal_second = self.literal(second).is_some() && self.literal(a).is_none();
        let swap = literal_first || (!literal_second && second < a);
        if swap && op.is_commutative() {
            (op, second, Some(a))
        } else if let (true, Some(swapped)) = (swap, op.swapped_comparison()) {
            (swapped, second, Some(a))
        } else {
            (op, a, b)
        }
    }

    /// Recognises Python's floor division in the form in which thunder records `a // b`:
    /// C division, less one where the signs differ and the division leaves a remainder.
    ///
    /// `quotient - int((signbit(a) != signbit(b)) & (int(fmod(a, b)) != 0))`
    ///
    /// The expected correction is looked up node by node, so it is found in whatever form the
    /// rules left it. `fmod` goes through floats and is off for integers beyond 2**53; `//` is
    /// what the recorded program meant, and is exact.
    fn floor_division(&self, quotient: Node, correction: Node) -> Option<(Node, Node)> {
        if !self.floor_division {
            return None;
        }
        let Key::Apply(ScalarOp::Div, a, b) = self.nodes[quotient.index()].key else { return None };
        let b = b.get()?;
        let exact = |node: Node| self.known(node).number_type == NumberType::Int;
        if !exact(a) || !exact(b) {
            return None;
        }
        let int = self.get(Key::Literal(Number::Type(NumberType::Int)))?;
        let zero = self.get(Key::Literal(Number::Int(0)))?;
        let sign_a = self.find(ScalarOp::Signbit, a, None)?;
        let sign_b = self.find(ScalarOp::Signbit, b, None)?;
        let signs_differ = self.find(ScalarOp::Ne, sign_a, Some(sign_b))?;
        let rest = self.find(ScalarOp::Fmod, a, Some(b))?;
        let rest = self.find(ScalarOp::Convert, rest, Some(int))?;
        let inexact = self.find(ScalarOp::Ne, rest, Some(zero))?;
        let corrects = self.find(ScalarOp::BitwiseAnd, signs_differ, Some(inexact))?;
        let expected = self.find(ScalarOp::Convert, corrects, Some(int))?;
        (expected == correction).then_some((a, b))
    }
}

fn push_node(nodes: &mut Vec<NodeData>, key: Key, number_type: NumberType, nonnegative: bool) -> Node {
    let node = Node::from_index(nodes.len());
    let hint = if let Key::Literal(number) = key { Some(number) } else { None };
    nodes.push(NodeData { key, number_type, nonnegative, hint, first_use: PackedOption::NONE });
    node
}

/// Of the operands of an operation the one that was made last.
fn newest(a: Node, b: PackedOption<Node>) -> Node {
    b.get().map_or(a, |b| a.max(b))
}

enum Reduced {
    Node(Node),
    Literal(Number),
    Apply(ScalarOp, Node, Option<Node>),
}

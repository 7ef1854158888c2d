//! What a file holds.
//!
//! The host's data is a table of nodes, each made of earlier ones: so there is no cycle, and a
//! walk over the table visits parts before wholes without recursion. A part may be shared.

use rustc_hash::{FxHashMap, FxHashSet};
use shapetrace_core::entity::{BitSet, Entity, PackedOption};
use shapetrace_core::ir::{Program, Value};

use crate::FormatError;

/// Nodes may be nested this deep.
pub const DEPTH_LIMIT: u32 = 500;

/// All that one node stands for, shared parts counted wherever they occur, may have so many nodes.
pub const EXPANDED_LIMIT: u64 = 1 << 26;

/// Objects whose parts the program sees.
const CONTAINERS: [&str; 5] = ["slice", "torch.Size", "dataclass", "named tuple", "OrderedDict"];

/// One node of the host's data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl Entity for NodeId {
    #[inline]
    fn from_index(index: usize) -> Self {
        Self(index as u32)
    }
    #[inline]
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node{}", self.0)
    }
}

impl std::fmt::Debug for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Plain data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// Nothing.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// An integer beyond 64 bits, in decimal digits.
    BigInt(Box<str>),
    /// A float, by its bits: a NaN equals itself, `0.0` and `-0.0` differ.
    Float(u64),
    /// Text.
    Text(Box<str>),
    /// Bytes.
    Bytes(Box<[u8]>),
    /// A fixed sequence.
    Tuple(Box<[NodeId]>),
    /// A sequence that may change: every mention is one of its own.
    List(Box<[NodeId]>),
    /// Keys and values by turns, in order of insertion.
    Dict(Box<[NodeId]>),
    /// Something that the host makes: a text that says what, then its arguments.
    Object(Box<[NodeId]>),
    /// Something with a name, and an identity: two equal ones are two. The parts are as those of
    /// an object; the value is what it stands for in the program, if it occurs there.
    Proxy(PackedOption<Value>, Box<[NodeId]>),
}

impl Node {
    /// The parts of the node, in order.
    pub fn children(&self) -> &[NodeId] {
        match self {
            Self::Tuple(children)
            | Self::List(children)
            | Self::Dict(children)
            | Self::Object(children)
            | Self::Proxy(_, children) => children,
            _ => &[],
        }
    }

    /// The same kind of node with other parts; a node without parts as it is.
    #[must_use]
    pub fn with_children(&self, children: Box<[NodeId]>) -> Self {
        match self {
            Self::Tuple(_) => Self::Tuple(children),
            Self::List(_) => Self::List(children),
            Self::Dict(_) => Self::Dict(children),
            Self::Object(_) => Self::Object(children),
            Self::Proxy(value, _) => Self::Proxy(*value, children),
            other => other.clone(),
        }
    }

    /// What kind of node it is, with an article.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Int(_) | Self::BigInt(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
            Self::Tuple(_) => "a tuple",
            Self::List(_) => "a list",
            Self::Dict(_) => "a dictionary",
            Self::Object(_) => "an object",
            Self::Proxy(..) => "a proxy",
        }
    }
}

/// A table of nodes.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    table: Vec<Node>,
    /// How deep each node is nested, and how many nodes it stands for.
    extents: Vec<(u32, u64)>,
    interned: FxHashMap<Node, NodeId>,
}

impl Nodes {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// All nodes, parts before wholes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.table.iter().enumerate().map(|(index, node)| (NodeId::from_index(index), node))
    }

    /// One node.
    ///
    /// # Panics
    /// If it is not of this table.
    #[inline]
    pub fn get(&self, id: NodeId) -> &Node {
        &self.table[id.index()]
    }

    /// Adds a node; one that is equal to an earlier one is that one, but for proxies.
    ///
    /// # Errors
    /// [`FormatError::NotBefore`], [`FormatError::WrongNode`] if what says what an object is, is no
    /// text, or a dictionary has a key without a value, and [`FormatError::TooLarge`] if the node is
    /// nested too deep or stands for too much.
    pub fn add(&mut self, node: Node) -> Result<NodeId, FormatError> {
        let is_proxy = matches!(node, Node::Proxy(..));
        if !is_proxy {
            if let Some(&id) = self.interned.get(&node) {
                return Ok(id);
            }
        }
        let id = self.push(node.clone())?;
        if !is_proxy {
            self.interned.insert(node, id);
        }
        Ok(id)
    }

    /// Adds a node as it is, equal to an earlier one or not.
    ///
    /// # Errors
    /// As [`Nodes::add`].
    pub fn push(&mut self, node: Node) -> Result<NodeId, FormatError> {
        let id = NodeId::from_index(self.table.len());
        if self.table.len() >= u32::MAX as usize - 1 {
            return Err(FormatError::TooLarge { what: "nodes", limit: u64::from(u32::MAX) - 1 });
        }
        if let Node::BigInt(digits) = &node {
            let digits = digits.strip_prefix('-').unwrap_or(digits);
            if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                return Err(FormatError::WrongNode { node: id, expected: "decimal digits", found: "another text" });
            }
        }
        let (mut depth, mut expanded) = (0, 1_u64);
        for &child in node.children() {
            let Some(&(child_depth, child_expanded)) = self.extents.get(child.index()) else {
                return Err(FormatError::NotBefore { node: id, child });
            };
            depth = depth.max(child_depth + 1);
            expanded = expanded.saturating_add(child_expanded);
        }
        match &node {
            Node::Object(children) | Node::Proxy(_, children) => {
                let expected = "a text that says what it is";
                match children.first().map(|&child| self.get(child)) {
                    Some(Node::Text(_)) => {}
                    Some(other) => return Err(FormatError::WrongNode { node: id, expected, found: other.kind_name() }),
                    None => return Err(FormatError::WrongNode { node: id, expected, found: "nothing" }),
                }
            }
            Node::Dict(children) if children.len() % 2 != 0 => {
                return Err(FormatError::WrongNode {
                    node: id,
                    expected: "a value for each key",
                    found: "a key without one",
                });
            }
            _ => {}
        }
        if depth > DEPTH_LIMIT {
            return Err(FormatError::TooLarge { what: "nodes inside each other", limit: u64::from(DEPTH_LIMIT) });
        }
        if expanded > EXPANDED_LIMIT {
            return Err(FormatError::TooLarge { what: "nodes in one structure", limit: EXPANDED_LIMIT });
        }
        self.table.push(node);
        self.extents.push((depth, expanded));
        Ok(id)
    }

    /// Adds a text.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn text(&mut self, text: &str) -> Result<NodeId, FormatError> {
        self.add(Node::Text(text.into()))
    }

    /// The text of a node, if it is one.
    pub fn as_text(&self, id: NodeId) -> Option<&str> {
        match self.get(id) {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The parts of a node that the program sees: those of containers. What else the host makes is
    /// one thing to the program, whatever it is made of.
    pub fn elements(&self, id: NodeId) -> &[NodeId] {
        match self.get(id) {
            Node::Proxy(..) => &[],
            Node::Object(parts) if !self.as_text(parts[0]).is_some_and(|kind| CONTAINERS.contains(&kind)) => &[],
            node => node.children(),
        }
    }

    /// Calls `visit` for the proxies among the elements of a node, left to right. Iterative.
    pub fn proxies(&self, root: NodeId, mut visit: impl FnMut(NodeId, PackedOption<Value>)) {
        let mut stack = vec![root];
        while let Some(id) = stack.pop() {
            match self.get(id) {
                Node::Proxy(value, _) => visit(id, *value),
                _ => stack.extend(self.elements(id).iter().rev()),
            }
        }
    }

    fn check(&self, id: NodeId) -> Result<(), FormatError> {
        if id.index() < self.table.len() {
            Ok(())
        } else {
            Err(FormatError::UnknownNode { node: id })
        }
    }
}

/// What the host keeps of one op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOp {
    /// The positional arguments: a tuple.
    pub args: NodeId,
    /// The keyword arguments: a dictionary.
    pub kwargs: NodeId,
    /// The output.
    pub output: NodeId,
    /// All else, such as where the op is from: a dictionary.
    pub details: NodeId,
}

/// All that the host needs to make its own objects again.
#[derive(Clone, Debug)]
pub struct HostData {
    /// The nodes that everything else here refers to.
    pub nodes: Nodes,
    /// Who wrote it, with which versions: a dictionary of texts.
    pub about: NodeId,
    /// The trace around the ops, such as its signature: a dictionary.
    pub trace: NodeId,
    /// How the host finds each symbol of the program.
    pub symbols: Vec<NodeId>,
    /// Each op of the program.
    pub ops: Vec<HostOp>,
}

impl HostData {
    /// All nodes that this data refers to itself.
    pub fn roots(&self) -> impl Iterator<Item = NodeId> + '_ {
        let parts = self.ops.iter().flat_map(|op| [op.args, op.kwargs, op.output, op.details]);
        [self.about, self.trace].into_iter().chain(self.symbols.iter().copied()).chain(parts)
    }

    /// The same data without the nodes that nothing refers to. Linear.
    ///
    /// # Errors
    /// None, if the data is well formed.
    pub fn without_unused_nodes(mut self) -> Result<Self, FormatError> {
        let mut used = BitSet::default();
        used.reset(self.nodes.len());
        for root in self.roots() {
            used.insert(root.index());
        }
        let mut new_ids = vec![PackedOption::NONE; self.nodes.len()];
        for index in (0..self.nodes.len()).rev() {
            if used.contains(index) {
                for child in self.nodes.table[index].children() {
                    used.insert(child.index());
                }
            }
        }
        let mut nodes = Nodes::default();
        for (id, node) in self.nodes.iter().filter(|(id, _)| used.contains(id.index())) {
            let children: Vec<NodeId> =
                node.children().iter().filter_map(|child| new_ids[child.index()].get()).collect();
            let node = if children.is_empty() { node.clone() } else { node.with_children(children.into()) };
            new_ids[id.index()] = nodes.add(node)?.into();
        }
        let new = |id: NodeId| new_ids[id.index()].get().ok_or(FormatError::UnknownNode { node: id });
        self.about = new(self.about)?;
        self.trace = new(self.trace)?;
        for symbol in &mut self.symbols {
            *symbol = new(*symbol)?;
        }
        for op in &mut self.ops {
            *op = HostOp {
                args: new(op.args)?,
                kwargs: new(op.kwargs)?,
                output: new(op.output)?,
                details: new(op.details)?,
            };
        }
        self.nodes = nodes;
        Ok(self)
    }
}

/// A trace, as it is kept in a file.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// What the optimizer sees. Its symbols are all used.
    pub program: Program,
    /// What the host needs beside; none for a program that never was a trace of a host.
    pub host: Option<HostData>,
}

impl TraceFile {
    /// Checks that the program and the host's data belong together. Linear in the size of both,
    /// shared nodes counted wherever they occur.
    ///
    /// # Errors
    /// [`FormatError`] that names the op or the node.
    pub fn check(&self) -> Result<(), FormatError> {
        let Some(host) = &self.host else { return Ok(()) };
        let program = &self.program;
        for (what, found, expected) in
            [("symbols", host.symbols.len(), program.symbols().len()), ("ops", host.ops.len(), program.op_count())]
        {
            if found != expected {
                return Err(FormatError::WrongCount { what, found, expected });
            }
        }
        for id in host.roots() {
            host.nodes.check(id)?;
        }
        for (_, node) in host.nodes.iter() {
            if let Node::Proxy(value, _) = node {
                if value.get().is_some_and(|value| value.index() >= program.value_count()) {
                    return Err(FormatError::WrongCount {
                        what: "values",
                        found: value.get().map_or(0, Entity::index) + 1,
                        expected: program.value_count(),
                    });
                }
            }
        }
        self.check_ops(host)
    }

    fn check_ops(&self, host: &HostData) -> Result<(), FormatError> {
        let program = &self.program;
        let is_dict = |id: NodeId| matches!(host.nodes.get(id), Node::Dict(_));
        let mut budget = EXPANDED_LIMIT;
        let mut operands = FxHashSet::default();
        let (mut results, mut written): (Vec<PackedOption<Value>>, Vec<_>) = (Vec::new(), Vec::new());
        for (op, host_op) in program.ops().zip(&host.ops) {
            let problem = |what| Err(FormatError::Inconsistent { op, what });
            if !matches!(host.nodes.get(host_op.args), Node::Tuple(_)) {
                return problem("its arguments are no tuple");
            }
            if !is_dict(host_op.kwargs) || !is_dict(host_op.details) {
                return problem("its keyword arguments, or its details, are no dictionary");
            }
            for id in [host_op.args, host_op.kwargs, host_op.output] {
                let expanded = host.nodes.extents[id.index()].1;
                let Some(rest) = budget.checked_sub(expanded) else {
                    return Err(FormatError::TooLarge { what: "nodes in all ops", limit: EXPANDED_LIMIT });
                };
                budget = rest;
            }
            operands.clear();
            operands.extend(program.operand_values(op));
            let mut missing = false;
            for id in [host_op.args, host_op.kwargs] {
                host.nodes
                    .proxies(id, |_, value| missing |= value.get().is_none_or(|value| !operands.contains(&value)));
            }
            if missing {
                return problem("an argument is none of its operands");
            }
            results.clear();
            results.extend(program.result_values(op).map(PackedOption::from));
            written.clear();
            host.nodes.proxies(host_op.output, |_, value| written.push(value));
            // The host may keep a structure in another order than the program reads it in.
            results.sort_unstable_by_key(|value| value.get());
            written.sort_unstable_by_key(|value| value.get());
            if results != written {
                return problem("its output is not made of its results");
            }
        }
        Ok(())
    }
}

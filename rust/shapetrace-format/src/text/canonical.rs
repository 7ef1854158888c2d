//! The nodes of a file as its text shows them: each once, whatever their numbers; which of them
//! get a name, and which name.

use rustc_hash::FxHashMap;
use shapetrace_core::entity::{BitSet, Entity};
use shapetrace_core::ir::Program;

use super::program::mentioned_values;
use super::spelling::{is_word, plain_digits, push_bytes, push_float, push_name, push_text, push_word};
use crate::model::{Node, NodeId, Nodes};

/// A text that is longer gets a name if it occurs more than once.
const LONG_TEXT: usize = 32;

/// Any other node that is longer gets a name if it occurs more than once.
const LONG_NODE: usize = 80;

/// So many characters of a text go into its label.
const LABEL_LENGTH: usize = 24;

/// One node, however often it is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item(u32);

/// Not reached, and so not written.
const UNREACHED: u32 = u32::MAX;

/// The nodes that are reached from some roots, made unique.
pub(super) struct Canonical<'a> {
    nodes: &'a Nodes,
    program: &'a Program,
    /// The values that the text of the program mentions.
    mentioned: BitSet,
    /// The item of each node.
    items: Vec<u32>,
    /// One of the nodes of each item.
    samples: Vec<NodeId>,
    /// How often the item is written, if it has no name.
    mentions: Vec<u32>,
    /// How long it is when it is written on one line, with the names of its parts.
    lengths: Vec<usize>,
    /// Of the content; the same in every file.
    hashes: Vec<u64>,
    visited: BitSet,
    /// The names of those that have one.
    labels: FxHashMap<Item, Box<str>>,
    /// How many labels are spelled the same but for their number.
    label_counts: FxHashMap<String, u32>,
}

impl<'a> Canonical<'a> {
    /// Finds what is reached from `roots`, each of which is a place where a node is written.
    pub(super) fn new(program: &'a Program, nodes: &'a Nodes, roots: impl Iterator<Item = NodeId> + Clone) -> Self {
        let mut reached = BitSet::default();
        reached.reset(nodes.len());
        for root in roots.clone() {
            reached.insert(root.index());
        }
        for id in (0..nodes.len()).rev().map(NodeId::from_index) {
            if reached.contains(id.index()) {
                for child in nodes.get(id).children() {
                    reached.insert(child.index());
                }
            }
        }
        let mut items = vec![UNREACHED; nodes.len()];
        let mut samples: Vec<NodeId> = Vec::new();
        let mut mentions: Vec<u32> = Vec::new();
        let mut known: FxHashMap<Node, u32> = FxHashMap::default();
        for (id, node) in nodes.iter().filter(|(id, _)| reached.contains(id.index())) {
            let new = samples.len() as u32;
            let item = if matches!(node, Node::Proxy(..)) {
                new
            } else {
                let children = node.children().iter().map(|&child| NodeId::from_index(items[child.index()] as usize));
                let key = match node {
                    Node::BigInt(digits) => integer(digits),
                    _ => node.with_children(children.collect()),
                };
                *known.entry(key).or_insert(new)
            };
            items[id.index()] = item;
            if item == new {
                samples.push(id);
                mentions.push(0);
                for child in node.children() {
                    let count = &mut mentions[items[child.index()] as usize];
                    *count = count.saturating_add(1);
                }
            }
        }
        for root in roots {
            let count = &mut mentions[items[root.index()] as usize];
            *count = count.saturating_add(1);
        }
        let mut visited = BitSet::default();
        visited.reset(samples.len());
        Self {
            nodes,
            program,
            mentioned: mentioned_values(program),
            items,
            lengths: vec![0; samples.len()],
            hashes: vec![0; samples.len()],
            samples,
            mentions,
            visited,
            labels: FxHashMap::default(),
            label_counts: FxHashMap::default(),
        }
    }

    /// The item of a node.
    pub(super) fn item(&self, node: NodeId) -> Item {
        Item(self.items[node.index()])
    }

    /// What the item is.
    pub(super) fn node(&self, item: Item) -> &'a Node {
        self.nodes.get(self.samples[item.0 as usize])
    }

    /// What an object or a proxy is.
    pub(super) fn kind(&self, children: &[NodeId]) -> &'a str {
        children.first().and_then(|&child| self.nodes.as_text(child)).unwrap_or_default()
    }

    /// The name by which the item is mentioned, if it has one.
    pub(super) fn label(&self, item: Item) -> Option<&str> {
        self.labels.get(&item).map(|label| &**label)
    }

    /// How long the item is when it is written on one line.
    pub(super) fn length(&self, item: Item) -> usize {
        self.lengths[item.0 as usize]
    }

    fn mention_length(&self, item: Item) -> usize {
        self.label(item).map_or_else(|| self.length(item), str::len)
    }

    /// Visits what is in a node and was not visited before, parts first, and names what needs a
    /// name. The items with names go to `definitions`, parts before wholes. Iterative.
    pub(super) fn visit(&mut self, root: NodeId, definitions: &mut Vec<Item>) {
        let mut stack = Vec::new();
        if self.visited.insert(self.item(root).0 as usize) {
            stack.push((self.item(root), 0));
        }
        while let Some((item, next)) = stack.last_mut() {
            let item = *item;
            if let Some(&child) = self.node(item).children().get(*next) {
                *next += 1;
                let child = self.item(child);
                if self.visited.insert(child.0 as usize) {
                    stack.push((child, 0));
                }
                continue;
            }
            stack.pop();
            self.measure(item);
            if self.name(item) {
                definitions.push(item);
            }
        }
    }

    /// Length and hash of an item whose parts are known.
    fn measure(&mut self, item: Item) {
        let node = self.node(item);
        let children = node.children();
        let mut hash = Hash::new(node);
        let mut length = match node {
            Node::Object(_) | Node::Proxy(..) => {
                let mut spelled = String::new();
                push_word(&mut spelled, self.kind(children));
                hash.add(spelled.as_bytes());
                spelled.len() + 2
            }
            Node::Tuple(_) => 2 + usize::from(children.len() == 1),
            Node::List(_) | Node::Dict(_) => 2,
            _ => {
                let mut spelled = String::new();
                push_leaf(&mut spelled, node);
                hash.add(spelled.as_bytes());
                spelled.len()
            }
        };
        for &child in shown(node) {
            let child = self.item(child);
            length += self.mention_length(child) + 2;
            hash.add(&self.hashes[child.0 as usize].to_le_bytes());
        }
        length -= 2 * usize::from(!shown(node).is_empty());
        self.lengths[item.0 as usize] = length;
        self.hashes[item.0 as usize] = hash.0;
    }

    /// Gives an item a name, if it needs one.
    fn name(&mut self, item: Item) -> bool {
        let node = self.node(item);
        let base = if let Node::Proxy(value, children) = node {
            let mut base = String::new();
            if let Some(value) = value.get().filter(|value| self.mentioned.contains(value.index())) {
                base.push('%');
                push_name(&mut base, &self.program.value_name(value));
            } else {
                base.push('~');
                let label = children.get(1).and_then(|&child| self.nodes.as_text(child));
                push_name(&mut base, label.unwrap_or(self.kind(children)));
            }
            base
        } else {
            let limit = if matches!(node, Node::Text(_)) { LONG_TEXT } else { LONG_NODE };
            if self.mentions[item.0 as usize] < 2 || self.lengths[item.0 as usize] <= limit {
                return false;
            }
            self.shared_label(item)
        };
        let count = self.label_counts.entry(base.clone()).or_insert(0);
        let label = if *count == 0 { base } else { format!("{base}'{count}") };
        *count += 1;
        if matches!(node, Node::Proxy(..)) {
            let mut hash = Hash::new(node);
            hash.add(label.as_bytes());
            self.hashes[item.0 as usize] = hash.0;
        }
        self.labels.insert(item, label.into());
        true
    }

    /// A label that follows from the content.
    fn shared_label(&self, item: Item) -> String {
        let node = self.node(item);
        let word = match node {
            Node::Text(text) => {
                let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
                let word: String = last.chars().take(LABEL_LENGTH).map(|c| if is_word(c) { c } else { '_' }).collect();
                if word.contains(|c: char| c.is_ascii_alphanumeric()) {
                    return format!("${word}");
                }
                "text".to_owned()
            }
            Node::Object(children) => {
                let last = self.kind(children).rsplit('.').next().unwrap_or_default();
                let word: String = last.chars().filter(|&c| is_word(c)).take(LABEL_LENGTH).collect();
                if word.is_empty() {
                    "object".to_owned()
                } else {
                    word
                }
            }
            Node::Tuple(_) => "tuple".to_owned(),
            Node::List(_) => "list".to_owned(),
            Node::Dict(_) => "dict".to_owned(),
            Node::Bytes(_) => "bytes".to_owned(),
            _ => "int".to_owned(),
        };
        format!("${word}.{:06x}", self.hashes[item.0 as usize] >> 40)
    }
}

/// An integer as it is written, in the smallest form.
fn integer(digits: &str) -> Node {
    let digits = plain_digits(digits);
    digits.parse().map_or_else(|_| Node::BigInt(digits.into()), Node::Int)
}

/// The parts that are written as nodes: not what says what an object is.
pub(super) fn shown(node: &Node) -> &[NodeId] {
    match node {
        Node::Object(children) | Node::Proxy(_, children) => children.get(1..).unwrap_or_default(),
        node => node.children(),
    }
}

/// A node without parts.
pub(super) fn push_leaf(text: &mut String, node: &Node) {
    match node {
        Node::None => text.push_str("None"),
        Node::Bool(true) => text.push_str("True"),
        Node::Bool(false) => text.push_str("False"),
        Node::Int(int) => text.push_str(&int.to_string()),
        Node::BigInt(digits) => text.push_str(&plain_digits(digits)),
        Node::Float(bits) => push_float(text, *bits),
        Node::Text(content) => push_text(text, content),
        Node::Bytes(content) => push_bytes(text, content),
        Node::Tuple(_) | Node::List(_) | Node::Dict(_) | Node::Object(_) | Node::Proxy(..) => {}
    }
}

/// FNV-1a: the labels in files must not depend on the version of a library.
struct Hash(u64);

impl Hash {
    fn new(node: &Node) -> Self {
        let mut hash = Self(0xcbf2_9ce4_8422_2325);
        hash.add(node.kind_name().as_bytes());
        hash
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

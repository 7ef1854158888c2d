//! Files into text.

use rustc_hash::FxHashMap;
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{Op, Program};

use super::canonical::{push_leaf, shown, Canonical, Item};
use super::program::{indentation, text_order, unique_names, walk, Step};
use super::spelling::{push_name, push_word};
use crate::model::{HostData, Node, NodeId, TraceFile};
use crate::FormatError;

/// What is longer goes over several lines, but for the lines of ops.
const WIDTH: usize = 100;

/// The file in its canonical text form. Linear in the size of the file but for the names of its
/// values, which are written wherever a value is mentioned, and for dimensions of tensors without a
/// number; no recursion.
///
/// # Panics
/// May, if [`TraceFile::check`] refuses the file.
pub fn print(file: &TraceFile) -> String {
    print_within(file, usize::MAX).expect("a text of any size is within the limit")
}

/// As [`print()`], for files from elsewhere: a small one with long names, or with a number in a
/// dimension far behind the others, can have a text that fits no memory.
///
/// # Errors
/// [`FormatError::TooLarge`] if the text has more than `limit` bytes; it is given up early.
///
/// # Panics
/// As [`print()`].
pub fn print_within(file: &TraceFile, limit: usize) -> Result<String, FormatError> {
    let too_large = || FormatError::TooLarge { what: "bytes of text", limit: limit as u64 };
    let renamed;
    let program = if let Some(names) = unique_names(&file.program) {
        let mut program = file.program.clone();
        program.name_values(names);
        renamed = program;
        &renamed
    } else {
        &file.program
    };
    let mut text = shapetrace_core::text::print_within(program, limit).ok_or_else(too_large)?;
    if let Some(host) = &file.host {
        text = host_block(program, host, text, limit);
    }
    if text.len() > limit {
        return Err(too_large());
    }
    Ok(text)
}

/// Only the host block, for a program in which each value has a name of its own. Cut off somewhere
/// if it has more than `limit` bytes.
pub(crate) fn print_host(program: &Program, host: &HostData, limit: usize) -> String {
    host_block(program, host, String::new(), limit)
}

/// What stands before the colon in the line of an op.
pub(super) fn push_op_label(text: &mut String, program: &Program, op: Op, copy: u32) {
    for (index, slot) in program.results(op).iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        match slot.get() {
            Some(value) => {
                text.push('%');
                push_name(text, &program.value_name(value));
            }
            None => text.push('_'),
        }
    }
    if !program.results(op).is_empty() {
        text.push_str(" = ");
    }
    push_symbol(text, &program.symbol(op).name, copy);
}

fn push_symbol(text: &mut String, name: &str, copy: u32) {
    push_word(text, name);
    if copy > 0 {
        text.push('\'');
        text.push_str(&copy.to_string());
    }
}

fn host_block(program: &Program, host: &HostData, text: String, limit: usize) -> String {
    let symbols = text_order(program).map(|op| program.symbol_id(op).index());
    // What an op applies, without those that nothing applies.
    let mut first_uses = Vec::new();
    let mut seen = vec![false; program.symbols().len()];
    for symbol in symbols {
        if !std::mem::replace(&mut seen[symbol], true) {
            first_uses.push(symbol);
        }
    }
    let parts = host.ops.iter().flat_map(|op| [op.args, op.kwargs, op.output, op.details]);
    let whole = [host.about, host.trace].into_iter();
    // An entry may be left out because another is equal: that makes no difference to what is long.
    let roots = whole.chain(first_uses.iter().map(|&symbol| host.symbols[symbol])).chain(parts);
    let canonical = Canonical::new(program, &host.nodes, roots);
    let mut printer = Printer { program, host, canonical, text, limit, copies: vec![0; program.symbols().len()] };
    printer.text.push_str("host {\n");
    printer.definitions([host.about].into_iter());
    printer.statement("about", host.about);
    printer.symbols(&first_uses);
    printer.definitions([host.trace].into_iter());
    printer.statement("trace", host.trace);
    let all = text_order(program).flat_map(|op| {
        let op = &host.ops[op.index()];
        [op.args, op.kwargs, op.output, op.details]
    });
    printer.definitions(all);
    printer.ops();
    printer.text.push_str("}\n");
    printer.text
}

struct Printer<'a> {
    program: &'a Program,
    host: &'a HostData,
    canonical: Canonical<'a>,
    text: String,
    limit: usize,
    /// Of each symbol: which of those with its name it is.
    copies: Vec<u32>,
}

/// A node with parts that is being written.
struct Frame<'a> {
    node: &'a Node,
    next: usize,
    /// How deep its own lines are indented, if each part has a line.
    broken: Option<usize>,
}

impl<'a> Printer<'a> {
    fn is_full(&self) -> bool {
        self.text.len() > self.limit
    }

    fn indent(&mut self, depth: usize) {
        let width = indentation(depth);
        self.text.extend(std::iter::repeat_n(' ', width));
    }

    fn definitions(&mut self, roots: impl Iterator<Item = NodeId>) {
        let mut definitions = Vec::new();
        for root in roots {
            self.canonical.visit(root, &mut definitions);
        }
        for item in definitions {
            if self.is_full() {
                return;
            }
            self.indent(1);
            self.mention(item);
            self.text.push_str(" = ");
            self.node(item, true, Some(1));
            self.text.push('\n');
        }
    }

    fn statement(&mut self, word: &str, id: NodeId) {
        self.indent(1);
        self.text.push_str(word);
        self.text.push(' ');
        self.node(self.canonical.item(id), false, Some(1));
        self.text.push('\n');
    }

    fn symbols(&mut self, first_uses: &[usize]) {
        let mut entries: FxHashMap<(&'a str, Item), u32> = FxHashMap::default();
        let mut counts: FxHashMap<&'a str, u32> = FxHashMap::default();
        let mut sorted: Vec<(&'a str, u32, NodeId)> = Vec::new();
        for &symbol in first_uses {
            let name: &'a str = &self.program.symbols()[symbol].name;
            let id = self.host.symbols[symbol];
            let copy = *entries.entry((name, self.canonical.item(id))).or_insert_with(|| {
                let count = counts.entry(name).or_insert(0);
                sorted.push((name, *count, id));
                *count += 1;
                *count - 1
            });
            self.copies[symbol] = copy;
        }
        sorted.sort_unstable_by_key(|&(name, copy, _)| (name, copy));
        self.definitions(sorted.iter().map(|&(.., id)| id));
        self.indent(1);
        self.text.push_str("symbols {\n");
        for (name, copy, id) in sorted {
            if self.is_full() {
                return;
            }
            self.indent(2);
            push_symbol(&mut self.text, name, copy);
            self.text.push_str(" = ");
            self.node(self.canonical.item(id), false, Some(2));
            self.text.push('\n');
        }
        self.indent(1);
        self.text.push_str("}\n");
    }

    fn ops(&mut self) {
        self.indent(1);
        self.text.push_str("ops {\n");
        for step in walk(self.program) {
            let Step::Op(op, depth, _) = step else { continue };
            if self.is_full() {
                return;
            }
            self.indent(depth + 2);
            push_op_label(&mut self.text, self.program, op, self.copies[self.program.symbol_id(op).index()]);
            self.text.push(':');
            let host_op = &self.host.ops[op.index()];
            for (word, id, may_miss) in [
                ("args", host_op.args, false),
                ("kwargs", host_op.kwargs, true),
                ("output", host_op.output, false),
                ("details", host_op.details, true),
            ] {
                let item = self.canonical.item(id);
                if may_miss && matches!(self.canonical.node(item), Node::Dict(children) if children.is_empty()) {
                    continue;
                }
                self.text.push(' ');
                self.text.push_str(word);
                self.text.push(' ');
                self.node(item, false, None);
            }
            self.text.push('\n');
        }
        self.indent(1);
        self.text.push_str("}\n");
    }

    /// The name of an item that has one.
    fn mention(&mut self, item: Item) -> bool {
        let label = self.canonical.label(item);
        self.text.push_str(label.unwrap_or_default());
        label.is_some()
    }

    /// Writes a node: over several lines, with its last bracket at `depth`, if it is long and a
    /// depth is given; by its name if it has one and is not to be defined.
    fn node(&mut self, root: Item, define: bool, depth: Option<usize>) {
        let mut frames: Vec<Frame<'a>> = Vec::new();
        self.open(root, define, depth, &mut frames);
        while let Some(frame) = frames.last_mut() {
            let parts = shown(frame.node);
            let is_dict = matches!(frame.node, Node::Dict(_));
            let (next, broken) = (frame.next, frame.broken);
            let Some(&part) = parts.get(next) else {
                let last = match frame.node {
                    Node::List(_) => ']',
                    Node::Dict(_) => '}',
                    _ => ')',
                };
                let needs_comma = matches!(frame.node, Node::Tuple(_)) && parts.len() == 1;
                frames.pop();
                if broken.is_some() || needs_comma {
                    self.text.push(',');
                }
                if let Some(depth) = broken {
                    self.text.push('\n');
                    self.indent(depth);
                }
                self.text.push(last);
                continue;
            };
            if self.is_full() {
                return;
            }
            frame.next += 1;
            let is_value = is_dict && next % 2 == 1;
            if is_value {
                self.text.push_str(": ");
            } else {
                if next > 0 {
                    self.text.push(',');
                }
                if let Some(depth) = broken {
                    self.text.push('\n');
                    self.indent(depth + 1);
                } else if next > 0 {
                    self.text.push(' ');
                }
            }
            let depth = broken.map(|depth| depth + 1).filter(|_| !is_dict || is_value);
            self.open(self.canonical.item(part), false, depth, &mut frames);
        }
    }

    fn open(&mut self, item: Item, define: bool, depth: Option<usize>, frames: &mut Vec<Frame<'a>>) {
        if !define && self.mention(item) {
            return;
        }
        let node = self.canonical.node(item);
        match node {
            Node::Tuple(_) => self.text.push('('),
            Node::List(_) => self.text.push('['),
            Node::Dict(_) => self.text.push('{'),
            Node::Object(children) | Node::Proxy(_, children) => {
                push_word(&mut self.text, self.canonical.kind(children));
                self.text.push('(');
            }
            _ => return push_leaf(&mut self.text, node),
        }
        let broken = depth.filter(|_| self.canonical.length(item) > WIDTH && !shown(node).is_empty());
        frames.push(Frame { node, next: 0, broken });
    }
}

//! Programs into text.

use std::fmt::Write;

use rustc_hash::FxHashSet;

use super::defaults::{kind_word, literal_kind, result_kind, symbol_flags, OP_FLAG_WORDS, SYMBOL_FLAG_WORDS};
use super::lexer::{is_word, named_number, spell_number};
use crate::entity::{BitSet, Entity};
use crate::ir::{apply, EditList, NumberType, Op, OpFlags, Operand, Program, Scope, ShapeMention, Value, ValueKind};

/// Deeper scopes are not indented further: the text of a program that is nested very deep would
/// be mostly spaces.
const DEEPEST_INDENT: usize = 24;

/// Up to this many result slots are searched one by one.
const SCAN_LIMIT: usize = 16;

/// The program in its canonical text form. Linear but for the names of values, which are written
/// wherever a value is mentioned, and for dimensions of tensors without a number; no recursion.
///
/// # Panics
/// If memory is not enough: see [`print_within`].
pub fn print(program: &Program) -> String {
    print_within(program, usize::MAX).expect("a text of any size is within the limit")
}

/// As [`print()`], for programs from elsewhere: a small one with long names, or with a number in a
/// dimension far behind the others, can have a text that fits no memory. None if the text has more
/// than `limit` bytes; it is given up early.
pub fn print_within(program: &Program, limit: usize) -> Option<String> {
    let mut printer = Printer::new(program, limit);
    printer.header();
    printer.body();
    (!printer.is_full()).then_some(printer.text)
}

/// The program as it is after an edit list is carried out: what was removed is gone, other names
/// are in force, slots that are no longer written are `_`.
///
/// # Panics
/// If the edit list was made for another program.
pub fn print_edited(program: &Program, edits: &EditList) -> String {
    print(&apply(program, edits))
}

/// One op on one line: names only, neither the kinds of values nor what is inside the op.
pub fn op_line(program: &Program, op: Op) -> String {
    let mut printer = Printer {
        program,
        text: String::new(),
        room: usize::MAX,
        names_only: true,
        seen: BitSet::default(),
        shaped: BitSet::default(),
        mentions: Vec::new(),
    };
    printer.op(op);
    printer.text
}

/// As [`op_line`] for all ops at once, by their index, and with the numbers in the shapes of
/// the tensors that an op makes.
///
/// # Panics
/// If memory is not enough: see [`op_lines_within`].
pub fn op_lines(program: &Program) -> Vec<String> {
    op_lines_within(program, usize::MAX).expect("lines of any size are within the limit")
}

/// As [`op_lines`], for programs from elsewhere: none if the lines have more than `limit` bytes in
/// all; they are given up early.
pub fn op_lines_within(program: &Program, limit: usize) -> Option<Vec<String>> {
    let mut printer = Printer::new(program, limit);
    printer.names_only = true;
    let line = |op| {
        printer.op(op);
        let line = std::mem::take(&mut printer.text);
        printer.room = printer.room.checked_sub(line.len())?;
        Some(line)
    };
    program.ops().map(line).collect()
}

struct Printer<'a> {
    program: &'a Program,
    text: String,
    /// How long the text may become; it is given up soon after.
    room: usize,
    /// Say nothing of values but their names.
    names_only: bool,
    seen: BitSet,
    shaped: BitSet,
    /// Tensors and the numbers in their shapes, by tensor.
    mentions: Vec<ShapeMention>,
}

impl<'a> Printer<'a> {
    fn new(program: &'a Program, room: usize) -> Self {
        let (mut seen, mut shaped) = (BitSet::default(), BitSet::default());
        seen.reset(program.value_count());
        shaped.reset(program.value_count());
        let mut mentions: Vec<_> =
            program.shape_mentions().iter().copied().filter(|m| program.value_kind(m.number).is_number()).collect();
        mentions.sort_unstable();
        mentions.dedup_by_key(|mention| (mention.tensor, mention.position));
        Self { program, text: String::new(), room, names_only: false, seen, shaped, mentions }
    }

    fn is_full(&self) -> bool {
        self.text.len() > self.room
    }

    fn header(&mut self) {
        self.text.push_str("trace");
        for (word, values) in
            [("", self.program.inputs()), (" keep", self.program.outputs()), (" pin", self.program.pinned())]
        {
            if !values.is_empty() {
                self.text.push_str(word);
                self.text.push('(');
                self.list(values.iter(), |printer, &value| printer.value(value, ValueKind::Tensor));
                self.text.push(')');
            }
        }
        self.text.push_str(" {\n");
    }

    fn body(&mut self) {
        // Ranges of ops still to be printed, the innermost last.
        let mut open = vec![self.program.scope_range(Scope::TOP)];
        while let Some(range) = open.last_mut() {
            if self.is_full() {
                return;
            }
            let next = range.next();
            let depth = open.len().min(DEEPEST_INDENT);
            let Some(op) = next else {
                open.pop();
                self.indent(depth - 1);
                self.text.push_str("}\n");
                continue;
            };
            self.indent(depth);
            let op = Op::from_index(op);
            self.op(op);
            if let Some(inside) = self.program.op_scope(op) {
                self.text.push_str(" {");
                open.push(self.program.scope_range(inside));
            }
            self.text.push('\n');
        }
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.text.push_str("  ");
        }
    }

    fn list<T>(&mut self, items: impl Iterator<Item = T>, mut print: impl FnMut(&mut Self, T)) {
        for (index, item) in items.enumerate() {
            if self.is_full() {
                return;
            }
            if index > 0 {
                self.text.push_str(", ");
            }
            print(self, item);
        }
    }

    fn op(&mut self, op: Op) {
        let program = self.program;
        let symbol = program.symbol(op);
        let form = self.results(op);
        self.name_or_quotes(&symbol.name);
        let operands = program.operands(op).iter();
        if symbol.name == "return" {
            if operands.len() > 0 {
                self.text.push(' ');
            }
            self.list(operands, |printer, &operand| printer.operand(operand));
        } else {
            self.text.push('(');
            self.list(operands, |printer, &operand| printer.operand(operand));
            self.text.push(')');
        }
        let (usual_flags, usual_scalar) = symbol_flags(&symbol.name);
        if symbol.scalar != usual_scalar {
            match symbol.scalar {
                None => self.text.push_str(" #no-scalar"),
                Some(scalar) => write!(self.text, " #scalar-{}", scalar.name()).expect("into a string"),
            }
        }
        for &(word, flag) in SYMBOL_FLAG_WORDS {
            self.flag(word, usual_flags.contains(flag), symbol.flags.contains(flag));
        }
        for &(word, flag) in OP_FLAG_WORDS {
            self.flag(word, form.contains(flag), program.flags(op).contains(flag));
        }
    }

    fn flag(&mut self, word: &str, usual: bool, set: bool) {
        if usual != set {
            self.text.push_str(if set { " #" } else { " #not-" });
            self.text.push_str(word);
        }
    }

    /// The results and the `=`; the flags that the form implies.
    fn results(&mut self, op: Op) -> OpFlags {
        let program = self.program;
        let slots = program.results(op);
        if slots.is_empty() {
            if program.flags(op).contains(OpFlags::EMPTY_RESULT) {
                self.text.push_str("() = ");
                return OpFlags::EMPTY_RESULT;
            }
            return OpFlags::LITERAL_RESULT;
        }
        let symbol = program.symbol(op);
        let depends_on_itself = !self.names_only && self.depends_on_itself(op);
        let kinds = program.operands(op).iter().map(|operand| match (operand.value(), operand.constant()) {
            (Some(value), _) => program.value_kind(value),
            (_, Some(constant)) => literal_kind(program.constant(constant)),
            _ => unreachable!("an operand is a value or a constant"),
        });
        let default = result_kind(symbol.flags, symbol.scalar, kinds);
        let mut form = OpFlags::empty();
        self.list(slots.iter(), |printer, slot| match slot.get() {
            Some(value) if printer.names_only => printer.name_and_shape(value),
            Some(value) => printer.described(value, default, depends_on_itself),
            None => {
                form |= OpFlags::LITERAL_RESULT;
                printer.text.push('_');
            }
        });
        self.text.push_str(" = ");
        form
    }

    /// Whether the op reads a new value that it makes: the kind of a result would be derived
    /// from itself.
    fn depends_on_itself(&self, op: Op) -> bool {
        let program = self.program;
        let is_new = |value: &Value| !self.seen.contains(value.index());
        let mut new_operands = program.operand_values(op).filter(is_new).peekable();
        if new_operands.peek().is_none() {
            return false;
        }
        let slots = program.results(op);
        if slots.len() <= SCAN_LIMIT {
            return new_operands.any(|value| slots.contains(&value.into()));
        }
        let results: FxHashSet<Value> = program.result_values(op).collect();
        new_operands.any(|value| results.contains(&value))
    }

    fn operand(&mut self, operand: Operand) {
        if let Some(value) = operand.value() {
            self.value(value, ValueKind::Tensor);
        } else if let Some(constant) = operand.constant() {
            self.text.push_str(&spell_number(self.program.constant(constant)));
        }
    }

    fn value(&mut self, value: Value, default: ValueKind) {
        self.described(value, default, false);
    }

    /// A value, with what is said of it where it is first mentioned.
    fn described(&mut self, value: Value, default: ValueKind, always: bool) {
        self.name(value);
        if self.names_only {
            return;
        }
        let kind = self.program.value_kind(value);
        let new = self.seen.insert(value.index());
        let shape = if self.shaped.insert(value.index()) { self.shape(value, kind) } else { 0..0 };
        if !shape.is_empty() || (new && (always || kind != default || self.has_hint(value))) {
            self.text.push_str(": ");
            self.text.push_str(kind_word(kind));
        }
        self.numbers_in_shape(shape);
        if new {
            self.hint(value);
        }
    }

    /// The range of the numbers in the shape of a tensor among all such numbers.
    fn shape(&self, tensor: Value, kind: ValueKind) -> std::ops::Range<usize> {
        if kind != ValueKind::Tensor {
            return 0..0;
        }
        let start = self.mentions.partition_point(|mention| mention.tensor < tensor);
        let len = self.mentions[start..].partition_point(|mention| mention.tensor == tensor);
        start..start + len
    }

    fn name_and_shape(&mut self, value: Value) {
        self.name(value);
        let shape = self.shape(value, self.program.value_kind(value));
        if !shape.is_empty() {
            self.text.push_str(": tensor");
        }
        self.numbers_in_shape(shape);
    }

    fn numbers_in_shape(&mut self, shape: std::ops::Range<usize>) {
        if !shape.is_empty() {
            self.text.push('[');
            self.list(shape, |printer, index| {
                let mention = printer.mentions[index];
                // Dimensions before it that are not named.
                let previous = index.checked_sub(1).map(|index| printer.mentions[index]);
                let next = previous.filter(|p| p.tensor == mention.tensor).map_or(0, |p| p.position + 1);
                for _ in next..mention.position {
                    if printer.is_full() {
                        return;
                    }
                    printer.text.push_str("_, ");
                }
                printer.number_in_shape(mention.number);
            });
            self.text.push(']');
        }
    }

    fn number_in_shape(&mut self, number: Value) {
        self.name(number);
        if self.names_only {
            return;
        }
        let kind = self.program.value_kind(number);
        let new = self.seen.insert(number.index());
        if new && (kind != ValueKind::Number(NumberType::Int) || self.has_hint(number)) {
            self.text.push_str(": ");
            self.text.push_str(kind_word(kind));
        }
        if new {
            self.hint(number);
        }
    }

    fn has_hint(&self, value: Value) -> bool {
        self.program.value_kind(value).is_number() && self.program.value_hint(value).is_some()
    }

    fn hint(&mut self, value: Value) {
        if self.has_hint(value) {
            let hint = self.program.value_hint(value).expect("there is one");
            self.text.push_str(" = ");
            self.text.push_str(&spell_number(hint));
        }
    }

    fn name(&mut self, value: Value) {
        let name = self.program.value_name(value);
        self.text.push('%');
        if !name.is_empty() && name.chars().all(is_word) {
            self.text.push_str(&name);
        } else {
            self.quotes(&name);
        }
    }

    fn name_or_quotes(&mut self, name: &str) {
        let is_plain = name.chars().all(is_word)
            && name.starts_with(|c: char| !c.is_ascii_digit())
            && name != "_"
            && named_number(name).is_none();
        if is_plain {
            self.text.push_str(name);
        } else {
            self.quotes(name);
        }
    }

    fn quotes(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '\n' => self.text.push_str("\\n"),
                '"' | '\\' => {
                    self.text.push('\\');
                    self.text.push(c);
                }
                _ => self.text.push(c),
            }
        }
        self.text.push('"');
    }
}

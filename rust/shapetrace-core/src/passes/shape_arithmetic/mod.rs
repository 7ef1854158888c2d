//! Value numbering of dimensions and of arithmetic on them, over all scopes at once.
//!
//! In: any program. Out: for each number that another name or a literal stands for, a
//! replacement; for each op that computes a floor division the long way, a candidate rewrite.
//! Nothing is removed here: after renaming, an op that computes what was computed before is a
//! duplicate producer, and the passes behind this one remove it.
//!
//! **Renaming is everywhere or nowhere.** A name is unique in a trace, so when `i7` and `i0` are
//! one number, `i0` takes the place of `i7` in every scope: where it is read, where it is
//! written, and in the shapes that tensors carry. A scope that defined `i7` for itself defines
//! `i0` for itself afterwards, so no scope comes to use what it cannot see.
//!
//! **Some names must stay:** those of program inputs (a number that is used where neither its scope
//! nor one around has defined it, whatever defines it later or elsewhere) and outputs, of what a
//! fusion touches (its
//! callable was compiled with them), of what an op makes that is not understood here, and of
//! numbers in the shapes of tensors that must stay themselves. Of several names the first that
//! must stay wins, else the first that was defined; two that must stay both stay.
//!
//! **Only what is there counts.** The pass sees the program as the edits made so far leave it: a
//! dead op neither lends its names to others nor makes any name stay. It may run several times;
//! what it renames is then renamed on top of what it renamed before.

mod dimensions;
mod numbering;
pub mod rules;
mod view;

use bitflags::bitflags;

use dimensions::Dimensions;
use numbering::{Node, Numbering};
use view::{is_plain, Read, View};

use crate::analysis::effects::Effects;
use crate::entity::{BitSet, Entity, PackedOption};
use crate::ir::{
    EditList, NumberType, Op, OpFlags, Operand, Program, Rewrite, ScalarOp, Scope, ShapeMention, SymbolFlags, Value,
    ValueKind,
};
use crate::passes::Options;

/// Most tensors have no more dimensions; those of one that only mentions tell of.
const USUAL_DIMENSIONS: usize = 4;

/// What a run of the pass did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// A value has another name.
    pub(super) renamed: bool,
    /// There are candidate rewrites.
    pub(super) proposed: bool,
    /// There are queries.
    pub(super) has_queries: bool,
    /// Another run would find nothing, whatever ops go until then, if so many rewrites are in force:
    /// all that there were, and all that this run proposed.
    ///
    /// So it is where no number is ambiguous, none has two names that must stay, and none that has
    /// such a name is a literal: then the next run, which meets a part of the same ops in the same
    /// order, tells apart at least what this one told apart and knows at most what this one knew,
    /// and each number has one name already.
    pub(super) final_with: Option<usize>,
}

/// A scope that is being walked.
#[derive(Clone, Copy, Debug)]
struct OpenScope {
    next: u32,
    end: u32,
    in_fusion: bool,
    /// Where the values that it defines start in the order of all visible ones.
    visible_start: u32,
}

bitflags! {
    /// What is found of a value.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Marks: u8 {
        /// It is a number.
        const NUMBER = 1;
        /// Its name must stay.
        const PINNED = 1 << 1;
        /// An op that is there defines it.
        const DEFINED = 1 << 2;
        /// An op that is there reads it, or the shape of something that is there mentions it.
        const USED = 1 << 3;
        /// A number that one of the scopes that are being walked has defined.
        const VISIBLE = 1 << 4;
    }
}

/// Memory of the pass, reused between programs.
#[derive(Debug, Default)]
pub(super) struct ShapeArithmetic {
    numbering: Numbering,
    dimensions: Dimensions<Value>,
    /// Union-find over values: names that the program itself gives to one dimension.
    synonyms: Vec<Value>,
    /// A dimension or a number has names that cannot become one, or none.
    is_ambiguous: bool,
    /// Values for which another stands among their synonyms.
    united: BitSet,
    /// The queries that are there.
    queries: Vec<Op>,
    marks: Vec<Marks>,
    /// What is visible, in the order in which it became so.
    visible_order: Vec<Value>,
    stack: Vec<OpenScope>,
    representatives: Vec<PackedOption<Value>>,
    rewrites: Vec<(Op, Node, Node)>,
}

impl ShapeArithmetic {
    /// Runs the pass; see the module. The first run for a program says so. Linear in the number of ops and operands.
    pub(super) fn run(
        &mut self,
        program: &Program,
        effects: &Effects,
        options: Options,
        first_run: bool,
        edits: &mut EditList,
    ) -> Found {
        self.rewrites.clear();
        if !self.find_work(program, first_run, edits) {
            return Found::default();
        }
        let has_queries = !self.queries.is_empty();
        self.numbering.reset(program.value_count(), options.floor_division);
        self.marks.clear();
        let is_number = |value| if program.value_kind(value).is_number() { Marks::NUMBER } else { Marks::empty() };
        self.marks.extend(program.values().map(is_number));
        self.united.reset(program.value_count());
        self.is_ambiguous = false;
        if is_plain(edits) {
            self.analyse(View::<true> { program, edits }, effects);
        } else {
            self.analyse(View::<false> { program, edits }, effects);
        }
        let renamed = self.choose_names(program, edits);
        let proposed = self.propose_rewrites(edits);
        let is_final = !self.is_ambiguous && !self.numbering.is_ambiguous();
        let final_with = is_final.then_some(edits.rewrites.len());
        Found { renamed, proposed, has_queries, final_with }
    }

    /// Finds which numbers are equal, and which names must stay.
    fn analyse<const PLAIN: bool>(&mut self, view: View<'_, PLAIN>, effects: &Effects) {
        self.find_synonyms(view, effects);
        self.number(view, effects);
        self.pin_the_rest(view);
    }

    /// Lists the queries that are there; whether there are any, or any arithmetic.
    fn find_work(&mut self, program: &Program, first_run: bool, edits: &EditList) -> bool {
        if !program.has_numbers() {
            self.queries.clear();
            return false;
        }
        if first_run {
            self.queries.clear();
            if program.may_have(SymbolFlags::SHAPE_QUERY) {
                let is_query = |&op: &Op| edits.is_kept(op) && program.shape_query(op).is_some();
                self.queries.extend(program.ops().filter(is_query));
            }
        } else {
            self.queries.retain(|&op| edits.is_kept(op));
        }
        let is_arithmetic = |op| program.scalar_operation(op).is_some() && edits.is_kept(op);
        !self.queries.is_empty() || program.ops().any(is_arithmetic)
    }

    /// Two queries of one tensor, or a query and the shape that the tensor carries, may give one
    /// dimension two names. thunder's own passes exchange one for the other when they meet the
    /// query, and then run in circles; here they become one value.
    fn find_synonyms<const PLAIN: bool>(&mut self, view: View<'_, PLAIN>, effects: &Effects) {
        self.synonyms.clear();
        self.synonyms.extend(view.program.values());
        self.dimensions.reset(view.program.value_count());
        for mention in view.program.shape_mentions() {
            if let Some(number) = view.edits.current(mention.number) {
                self.dimensions.get_or_insert_with((mention.tensor, mention.position), USUAL_DIMENSIONS, || number);
            }
        }
        let queries = std::mem::take(&mut self.queries);
        for &op in &queries {
            let Some(tensor) = view.program.shape_query(op).filter(|_| effects.may_merge(op)) else { continue };
            for (position, result) in view.results(op).enumerate() {
                if let Some(value) = result {
                    let width = view.program.results(op).len();
                    let other = self.dimensions.get_or_insert_with((tensor, position as u32), width, || value);
                    self.unite(view.program, value, other);
                }
            }
        }
        self.queries = queries;
    }

    fn unite(&mut self, program: &Program, a: Value, b: Value) {
        if a == b {
            return;
        }
        let (a, b) = (self.synonym(a), self.synonym(b));
        let int = ValueKind::Number(NumberType::Int);
        let plausible = match (program.value_hint(a), program.value_hint(b)) {
            (Some(hint_a), Some(hint_b)) => hint_a == hint_b,
            _ => true,
        };
        if a == b {
            return;
        }
        if plausible && program.value_kind(a) == int && program.value_kind(b) == int {
            let (older, newer) = if a < b { (a, b) } else { (b, a) };
            self.synonyms[newer.index()] = older;
            self.united.insert(newer.index());
        } else {
            self.is_ambiguous = true;
        }
    }

    /// The value that stands for all its synonyms.
    #[inline]
    fn synonym(&mut self, mut value: Value) -> Value {
        loop {
            let parent = self.synonyms[value.index()];
            if parent == value {
                return value;
            }
            self.synonyms[value.index()] = self.synonyms[parent.index()];
            value = parent;
        }
    }

    /// Walks the program in the order of its text, each op before what is inside it.
    fn number<const PLAIN: bool>(&mut self, view: View<'_, PLAIN>, effects: &Effects) {
        let program = view.program;
        self.visible_order.clear();
        self.stack.clear();
        let mut current = self.open(program, Scope::TOP, false);
        loop {
            if current.next == current.end {
                for value in self.visible_order.drain(current.visible_start as usize..) {
                    self.marks[value.index()].remove(Marks::VISIBLE);
                }
                let Some(around) = self.stack.pop() else { break };
                current = around;
                // What the owner makes is there behind it, not inside it.
                for value in view.result_values(Op::from_index(around.next as usize - 1)) {
                    self.make_visible(value);
                }
                continue;
            }
            let op = Op::from_index(current.next as usize);
            current.next += 1;
            if !view.edits.is_kept(op) {
                continue;
            }
            let is_fusion = program.symbol_flags(op).contains(SymbolFlags::FUSION);
            let pin_all = current.in_fusion || is_fusion;
            self.number_op(view, effects, op, pin_all);
            if let Some(scope) = program.op_scope(op) {
                self.stack.push(current);
                current = self.open(program, scope, pin_all);
                for value in view.operand_values(op) {
                    self.make_visible(value);
                }
            }
        }
    }

    fn open(&self, program: &Program, scope: Scope, in_fusion: bool) -> OpenScope {
        let range = program.scope_range(scope);
        let visible_start = self.visible_order.len() as u32;
        OpenScope { next: range.start as u32, end: range.end as u32, in_fusion, visible_start }
    }

    #[inline]
    fn make_visible(&mut self, value: Value) {
        let marks = &mut self.marks[value.index()];
        if *marks & (Marks::NUMBER | Marks::VISIBLE) == Marks::NUMBER {
            marks.insert(Marks::VISIBLE);
            self.visible_order.push(value);
        }
    }

    fn pin(&mut self, value: Value) {
        self.marks[value.index()].insert(Marks::PINNED);
    }

    fn is_pinned(&self, value: Value) -> bool {
        self.marks[value.index()].contains(Marks::PINNED)
    }

    #[inline]
    fn number_op<const PLAIN: bool>(&mut self, view: View<'_, PLAIN>, effects: &Effects, op: Op, pin_all: bool) {
        let program = view.program;
        let (symbol, has_scope) = (program.symbol_flags(op), program.op_scope(op).is_some());
        let fixed = symbol.contains(SymbolFlags::RETURN) || program.flags(op).contains(OpFlags::FIXED_NAMES);
        let pin_all = pin_all || fixed;
        let pin_results =
            pin_all || !symbol.contains(SymbolFlags::USUAL_PRINTER) || symbol.contains(SymbolFlags::EFFECT);
        let pinned = |pins| if pins { Marks::PINNED } else { Marks::empty() };
        // A number that is read before anything defined it is an input, of unknown sign: that a
        // tensor later turns out to have it as a dimension says nothing of what came before.
        let read = Marks::USED | pinned(pin_all);
        for value in view.operand_values(op) {
            let marks = &mut self.marks[value.index()];
            let before = *marks;
            marks.insert(read);
            if before & (Marks::NUMBER | Marks::VISIBLE) == Marks::NUMBER {
                marks.insert(Marks::PINNED);
                if !before.contains(Marks::DEFINED) {
                    self.read_input(program, value);
                }
            }
        }
        let made = Marks::DEFINED | pinned(pin_results);
        let mut makes_numbers = false;
        for value in view.result_values(op) {
            let marks = &mut self.marks[value.index()];
            marks.insert(made);
            if marks.contains(Marks::NUMBER) {
                makes_numbers = true;
                if !has_scope {
                    self.make_visible(value);
                }
            }
        }
        if pin_all {
            return;
        }
        // What is rarer is kept apart from what every op needs.
        let understood = effects.may_merge(op);
        if symbol.contains(SymbolFlags::SHAPE_QUERY) && understood {
            if let Some(tensor) = program.shape_query(op) {
                self.number_query(view, op, tensor);
                return;
            }
        }
        if makes_numbers {
            self.number_result(view, op, understood);
        }
    }

    #[inline(never)]
    fn number_query<const PLAIN: bool>(&mut self, view: View<'_, PLAIN>, op: Op, tensor: Value) {
        let program = view.program;
        let width = program.results(op).len();
        for (position, result) in view.results(op).enumerate() {
            let Some(value) = result else { continue };
            if program.value_kind(value) == ValueKind::Number(NumberType::Int) {
                let hint = program.value_hint(value);
                let synonym = self.synonym(value);
                self.numbering.bind_dimension(synonym, (tensor, position as u32), width, hint);
            } else {
                self.pin(value);
            }
        }
    }

    #[inline(never)]
    fn number_result<const PLAIN: bool>(&mut self, view: View<'_, PLAIN>, op: Op, understood: bool) {
        let program = view.program;
        let arithmetic = if understood { view.scalar_op(op) } else { None };
        let arithmetic = arithmetic.filter(|&(_, result)| view.operand_values(op).all(|value| value != result));
        if let Some((scalar, result)) = arithmetic {
            let is_rewritten = view.is_rewritten(op);
            let mut node = |operand| self.operand_node(program, view.read(operand, is_rewritten));
            let (a, b) = match *view.operand_row(op) {
                [a] => (node(a), None),
                [a, b] => (node(a), Some(node(b))),
                _ => unreachable!("scalar arithmetic has one operand or two"),
            };
            let number_type = number_type(program, result);
            let synonym = self.synonym(result);
            let known = self.numbering.node_of(synonym);
            let node = self.numbering.apply(scalar, a, b, number_type, known);
            if known.is_none() {
                self.numbering.bind(synonym, node, number_type, program.value_hint(result));
            }
            if scalar != ScalarOp::FloorDiv && self.numbering.node_of(synonym) == Some(node) {
                if let Some((dividend, divisor)) = self.numbering.floor_division_operands(node) {
                    self.rewrites.push((op, dividend, divisor));
                }
            }
            return;
        }
        // An op that is not understood names what it makes, unless what is inside it tells how.
        if program.op_scope(op).is_none() || !understood {
            for value in view.result_values(op) {
                if program.value_kind(value).is_number() {
                    self.pin(value);
                    self.read(program, value);
                }
            }
        }
    }

    #[cold]
    fn read_input(&mut self, program: &Program, value: Value) {
        self.read(program, value);
    }

    fn read(&mut self, program: &Program, value: Value) -> Node {
        let synonym = self.synonym(value);
        let make = || (number_type(program, value), program.value_hint(value));
        self.numbering.read(synonym, make)
    }

    fn operand_node(&mut self, program: &Program, operand: Read) -> Node {
        match operand {
            Read::Value(value) => self.read(program, value),
            Read::Number(number) => self.numbering.number(number),
        }
    }

    fn pin_the_rest<const PLAIN: bool>(&mut self, view: View<'_, PLAIN>) {
        let program = view.program;
        for &value in program.outputs().iter().chain(program.pinned()).chain(program.inputs()) {
            self.pin(value);
        }
        // A number in the shape of what is there is used as well. What only dead ops mention is nowhere.
        for &ShapeMention { tensor, number, .. } in program.shape_mentions() {
            let index = tensor.index();
            let is_there = self.marks[index].intersects(Marks::DEFINED | Marks::USED | Marks::PINNED);
            if let (true, Some(number)) = (is_there, view.edits.current(number)) {
                self.marks[number.index()].insert(Marks::USED);
            }
        }
        for marks in &mut self.marks {
            if *marks & (Marks::DEFINED | Marks::USED) == Marks::USED {
                marks.insert(Marks::PINNED);
            }
        }
        for &ShapeMention { tensor, number, .. } in program.shape_mentions() {
            if let (true, Some(number)) = (self.is_pinned(tensor), view.edits.current(number)) {
                self.pin(number);
            }
        }
    }

    fn node_of_number(&mut self, program: &Program, value: Value) -> Option<Node> {
        if !program.value_kind(value).is_number() {
            return None;
        }
        let synonym = self.synonym(value);
        self.numbering.node_of(synonym)
    }

    /// Renames; whether any value goes by another name than before.
    fn choose_names(&mut self, program: &Program, edits: &mut EditList) -> bool {
        self.representatives.clear();
        self.representatives.resize(self.numbering.node_count(), PackedOption::NONE);
        // In the order of values: the first that must stay, or else the first of all.
        self.united.insert_all(self.numbering.named());
        let united = std::mem::take(&mut self.united);
        let numbers = || united.iter().map(Value::from_index);
        let has_own_name = |edits: &EditList, value: Value| edits.replacement(value).is_none();
        for value in numbers().filter(|&value| has_own_name(edits, value)) {
            let Some(node) = self.node_of_number(program, value) else { continue };
            let slot = &mut self.representatives[node.index()];
            let must_stay = |value: Value| self.marks[value.index()].contains(Marks::PINNED);
            if slot.get().is_none_or(|first| must_stay(value) && !must_stay(first)) {
                *slot = value.into();
            }
        }
        edits.replacements.resize(program.value_count(), PackedOption::NONE);
        let mut renamed = false;
        for value in numbers() {
            if !has_own_name(edits, value) {
                continue;
            }
            let Some(node) = self.node_of_number(program, value) else { continue };
            if self.is_pinned(value) {
                let is_the_name = self.representatives[node.index()].get() == Some(value);
                self.is_ambiguous |= !is_the_name || self.numbering.literal(node).is_some();
                continue;
            }
            let replacement: Operand = if let Some(number) = self.numbering.literal(node) {
                edits.literal(number).into()
            } else {
                let name = self.representatives[node.index()].get().expect("the node has this name at least");
                if name == value {
                    continue;
                }
                name.into()
            };
            edits.replacements[value.index()] = replacement.into();
            renamed = true;
        }
        self.united = united;
        if renamed {
            Self::rename_again(program, edits);
        }
        renamed
    }

    /// What earlier runs renamed to a name that has another name now gets that one.
    fn rename_again(program: &Program, edits: &mut EditList) {
        // A name that was chosen in this run has no other.
        if std::mem::replace(&mut edits.has_replacements, true) {
            for value in program.values() {
                let Some(name) = edits.replacement(value).and_then(Operand::value) else { continue };
                if let Some(other) = edits.replacement(name) {
                    edits.replacements[value.index()] = other.into();
                }
            }
        }
        let mut rewrites = std::mem::take(&mut edits.rewrites);
        for operand in rewrites.iter_mut().flat_map(|rewrite| &mut rewrite.operands) {
            if let Some(other) = operand.value().and_then(|value| edits.replacement(value)) {
                *operand = other;
            }
        }
        edits.rewrites = rewrites;
        edits.reshaped.reset(program.value_count());
        for &ShapeMention { tensor, number, .. } in program.shape_mentions() {
            if edits.replacement(number).is_some() {
                edits.reshaped.insert(tensor.index());
            }
        }
    }

    /// Adds candidate rewrites; whether there are any.
    fn propose_rewrites(&mut self, edits: &mut EditList) -> bool {
        let before = edits.rewrites.len();
        for &(op, dividend, divisor) in &self.rewrites {
            let mut operands = [dividend, divisor].into_iter().map(|node| {
                if let Some(number) = self.numbering.literal(node) {
                    Some(Operand::from(edits.literal(number)))
                } else {
                    self.representatives[node.index()].get().map(Operand::from)
                }
            });
            if let (Some(Some(a)), Some(Some(b))) = (operands.next(), operands.next()) {
                edits.rewrites.push(Rewrite { op, scalar: ScalarOp::FloorDiv, operands: [a, b], settled: false });
            } else {
                self.is_ambiguous = true;
            }
        }
        let proposed = edits.rewrites.len() > before;
        if proposed {
            // Scopes are numbered in pre-order, not in the order of the text.
            edits.rewrites.sort_by_key(|rewrite| rewrite.op);
        }
        proposed
    }
}

fn number_type(program: &Program, value: Value) -> NumberType {
    match program.value_kind(value) {
        ValueKind::Number(number_type) => number_type,
        _ => NumberType::Other,
    }
}

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

use dimensions::Dimensions;
use numbering::{Node, Numbering};
use view::{Read, View};

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

/// Memory of the pass, reused between programs.
#[derive(Debug, Default)]
pub(super) struct ShapeArithmetic {
    numbering: Numbering,
    dimensions: Dimensions<Value>,
    /// Union-find over values: names that the program itself gives to one dimension.
    synonyms: Vec<Value>,
    pinned: BitSet,
    /// What the ops that are there define, and what they read.
    defined: BitSet,
    used: BitSet,
    /// What the scopes that are being walked define, and what to take out when one is left.
    visible: BitSet,
    visible_order: Vec<Value>,
    stack: Vec<OpenScope>,
    representatives: Vec<PackedOption<Value>>,
    rewrites: Vec<(Op, Node, Node)>,
}

impl ShapeArithmetic {
    /// Runs the pass; see the module. Linear in the number of ops and operands.
    pub(super) fn run(
        &mut self,
        program: &Program,
        effects: &Effects,
        options: Options,
        edits: &mut EditList,
    ) -> Found {
        self.rewrites.clear();
        let kept = || program.ops().filter(|&op| edits.is_kept(op));
        let has_queries = program.has_numbers() && kept().any(|op| program.shape_query(op).is_some());
        let has_work =
            has_queries || (program.has_numbers() && kept().any(|op| program.scalar_operation(op).is_some()));
        if !has_work {
            return Found::default();
        }
        let view = View { program, edits };
        self.numbering.reset(program.value_count(), options.floor_division);
        self.pinned.reset(program.value_count());
        self.defined.reset(program.value_count());
        self.used.reset(program.value_count());
        self.find_synonyms(view, effects);
        self.number(view, effects);
        self.pin_the_rest(view);
        let renamed = self.choose_names(program, edits);
        let proposed = self.propose_rewrites(edits);
        Found { renamed, proposed, has_queries }
    }

    /// Two queries of one tensor, or a query and the shape that the tensor carries, may give one
    /// dimension two names. thunder's own passes exchange one for the other when they meet the
    /// query, and then run in circles; here they become one value.
    fn find_synonyms(&mut self, view: View<'_>, effects: &Effects) {
        self.synonyms.clear();
        self.synonyms.extend(view.program.values());
        self.dimensions.reset(view.program.value_count());
        for mention in view.program.shape_mentions() {
            if let Some(number) = view.edits.current(mention.number) {
                self.dimensions.get_or_insert_with((mention.tensor, mention.position), USUAL_DIMENSIONS, || number);
            }
        }
        for op in view.program.ops().filter(|&op| view.edits.is_kept(op)) {
            let Some(tensor) = view.program.shape_query(op).filter(|_| effects.may_merge(op)) else { continue };
            for (position, result) in view.results(op).enumerate() {
                if let Some(value) = result {
                    let width = view.program.results(op).len();
                    let other = self.dimensions.get_or_insert_with((tensor, position as u32), width, || value);
                    self.unite(view.program, value, other);
                }
            }
        }
    }

    fn unite(&mut self, program: &Program, a: Value, b: Value) {
        let (a, b) = (self.synonym(a), self.synonym(b));
        let int = ValueKind::Number(NumberType::Int);
        let plausible = match (program.value_hint(a), program.value_hint(b)) {
            (Some(hint_a), Some(hint_b)) => hint_a == hint_b,
            _ => true,
        };
        if plausible && program.value_kind(a) == int && program.value_kind(b) == int {
            let (older, newer) = if a < b { (a, b) } else { (b, a) };
            self.synonyms[newer.index()] = older;
        }
    }

    /// The value that stands for all its synonyms.
    fn synonym(&mut self, mut value: Value) -> Value {
        while self.synonyms[value.index()] != value {
            let parent = self.synonyms[value.index()];
            self.synonyms[value.index()] = self.synonyms[parent.index()];
            value = parent;
        }
        value
    }

    /// Walks the program in the order of its text, each op before what is inside it.
    fn number(&mut self, view: View<'_>, effects: &Effects) {
        let program = view.program;
        self.visible.reset(program.value_count());
        self.visible_order.clear();
        self.stack.clear();
        self.open(program, Scope::TOP, false);
        while let Some(current) = self.stack.last_mut() {
            if current.next == current.end {
                let visible_start = current.visible_start as usize;
                for value in self.visible_order.drain(visible_start..) {
                    self.visible.remove(value.index());
                }
                self.stack.pop();
                if let Some(around) = self.stack.last() {
                    // What the owner makes is there behind it, not inside it.
                    self.make_visible(view.result_values(Op::from_index(around.next as usize - 1)));
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
                self.open(program, scope, pin_all);
                self.make_visible(view.operand_values(op));
            } else {
                self.make_visible(view.result_values(op));
            }
        }
    }

    fn open(&mut self, program: &Program, scope: Scope, in_fusion: bool) {
        let range = program.scope_range(scope);
        let visible_start = self.visible_order.len() as u32;
        self.stack.push(OpenScope { next: range.start as u32, end: range.end as u32, in_fusion, visible_start });
    }

    fn make_visible(&mut self, values: impl Iterator<Item = Value>) {
        for value in values {
            if self.visible.insert(value.index()) {
                self.visible_order.push(value);
            }
        }
    }

    fn number_op(&mut self, view: View<'_>, effects: &Effects, op: Op, pin_all: bool) {
        let program = view.program;
        // A number that is read before anything defined it is an input, of unknown sign: that a
        // tensor later turns out to have it as a dimension says nothing of what came before.
        for value in view.operand_values(op) {
            if program.value_kind(value).is_number() && !self.visible.contains(value.index()) {
                self.pinned.insert(value.index());
                if !self.defined.contains(value.index()) {
                    self.read(program, value);
                }
            }
            self.used.insert(value.index());
        }
        for value in view.result_values(op) {
            self.defined.insert(value.index());
        }
        let fixed =
            program.symbol_flags(op).contains(SymbolFlags::RETURN) || program.flags(op).contains(OpFlags::FIXED_NAMES);
        if pin_all || fixed {
            for value in view.operand_values(op).chain(view.result_values(op)) {
                self.pinned.insert(value.index());
            }
            return;
        }
        let understood = effects.may_merge(op);
        let symbol = program.symbol_flags(op);
        if !symbol.contains(SymbolFlags::USUAL_PRINTER) || symbol.contains(SymbolFlags::EFFECT) {
            for value in view.result_values(op) {
                self.pinned.insert(value.index());
            }
        }
        if let (true, Some(tensor)) = (understood, program.shape_query(op)) {
            for (position, result) in view.results(op).enumerate() {
                let Some(value) = result else { continue };
                if program.value_kind(value) == ValueKind::Number(NumberType::Int) {
                    let hint = program.value_hint(value);
                    let synonym = self.synonym(value);
                    let width = program.results(op).len();
                    self.numbering.bind_dimension(synonym, (tensor, position as u32), width, hint);
                } else {
                    self.pinned.insert(value.index());
                }
            }
            return;
        }
        let arithmetic = view.scalar_op(op).filter(|&(_, result)| view.operand_values(op).all(|value| value != result));
        if let (true, Some((scalar, result))) = (understood, arithmetic) {
            let mut nodes = view.operands(op).map(|operand| self.operand_node(program, operand));
            let a = nodes.next().expect("scalar arithmetic has operands");
            let b = nodes.next();
            drop(nodes);
            let number_type = number_type(program, result);
            let synonym = self.synonym(result);
            let known = self.numbering.node_of(synonym);
            let node = self.numbering.apply(scalar, a, b, number_type, known);
            self.numbering.bind(synonym, node, number_type, program.value_hint(result));
            if self.numbering.node_of(synonym) == Some(node) && scalar != ScalarOp::FloorDiv {
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
                    self.pinned.insert(value.index());
                    self.read(program, value);
                }
            }
        }
    }

    fn read(&mut self, program: &Program, value: Value) -> Node {
        let synonym = self.synonym(value);
        self.numbering.read(synonym, number_type(program, value), program.value_hint(value))
    }

    fn operand_node(&mut self, program: &Program, operand: Read) -> Node {
        match operand {
            Read::Value(value) => self.read(program, value),
            Read::Number(number) => self.numbering.number(number),
        }
    }

    fn pin_the_rest(&mut self, view: View<'_>) {
        let program = view.program;
        for &value in program.outputs().iter().chain(program.pinned()).chain(program.inputs()) {
            self.pinned.insert(value.index());
        }
        // A number in the shape of what is there is used as well. What only dead ops mention is nowhere.
        for &ShapeMention { tensor, number, .. } in program.shape_mentions() {
            let index = tensor.index();
            let is_there = self.defined.contains(index) || self.used.contains(index) || self.pinned.contains(index);
            if let (true, Some(number)) = (is_there, view.edits.current(number)) {
                self.used.insert(number.index());
            }
        }
        self.pinned.insert_difference(&self.used, &self.defined);
        for &ShapeMention { tensor, number, .. } in program.shape_mentions() {
            if let (true, Some(number)) = (self.pinned.contains(tensor.index()), view.edits.current(number)) {
                self.pinned.insert(number.index());
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
        let has_own_name = |edits: &EditList, value: Value| edits.replacement(value).is_none();
        for value in program.values().filter(|&value| has_own_name(edits, value)) {
            let Some(node) = self.node_of_number(program, value) else { continue };
            let slot = &mut self.representatives[node.index()];
            let must_stay = |value: Value| self.pinned.contains(value.index());
            if slot.get().is_none_or(|first| must_stay(value) && !must_stay(first)) {
                *slot = value.into();
            }
        }
        edits.replacements.resize(program.value_count(), PackedOption::NONE);
        let mut renamed = false;
        for value in program.values() {
            if self.pinned.contains(value.index()) || !has_own_name(edits, value) {
                continue;
            }
            let Some(node) = self.node_of_number(program, value) else { continue };
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
        if renamed {
            Self::rename_again(program, edits);
        }
        renamed
    }

    /// What earlier runs renamed to a name that has another name now gets that one.
    fn rename_again(program: &Program, edits: &mut EditList) {
        edits.has_replacements = true;
        for value in program.values() {
            let Some(name) = edits.replacement(value).and_then(Operand::value) else { continue };
            if let Some(other) = edits.replacement(name) {
                edits.replacements[value.index()] = other.into();
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

//! Carries an edit list out: the program as it is afterwards.

use rustc_hash::FxHashMap;

use crate::entity::{Entity, PackedOption};
use crate::ir::{
    Constant, EditList, Number, Op, OpFlags, Operand, Program, ProgramBuilder, ScalarOp, Symbol, SymbolData,
    SymbolFlags, Value,
};

/// The answer of [`apply_with_ops`].
#[derive(Clone, Debug)]
pub struct Applied {
    /// The program as it is afterwards. Values have the ids that they had.
    pub program: Program,
    /// For each op of the program before, what it is now; none if it went.
    pub ops: Vec<PackedOption<Op>>,
}

/// The program as it is after an edit list is carried out.
///
/// The binding does the same to the host's own objects; this is for tests, tools and text.
///
/// # Panics
/// If the edit list was made for another program.
pub fn apply(program: &Program, edits: &EditList) -> Program {
    apply_with_ops(program, edits).program
}

/// As [`apply`], and tells what became of each op. Linear; no recursion.
///
/// # Panics
/// If the edit list was made for another program.
pub fn apply_with_ops(program: &Program, edits: &EditList) -> Applied {
    let mut writer = Writer::new(program, edits);
    for scope in program.scopes() {
        match program.scope_owner(scope) {
            None => {
                writer.builder.open_top_scope().expect("the first scope");
            }
            Some(owner) => {
                let Some(owner) = writer.ops[owner.index()].get() else { continue };
                writer.builder.open_scope(owner).expect("scopes come in the order in which they came before");
            }
        }
        for op in program.scope_ops(scope).filter(|&op| edits.is_kept(op)) {
            writer.write_op(op);
        }
    }
    let program = writer.builder.finish().expect("a program with fewer ops is well formed as well");
    Applied { program, ops: writer.ops }
}

struct Writer<'a> {
    before: &'a Program,
    edits: &'a EditList,
    builder: ProgramBuilder,
    ops: Vec<PackedOption<Op>>,
    /// Literals of the edit list, and operations of rewrites, as ids of the new program.
    literals: Vec<Constant>,
    rewritten: FxHashMap<ScalarOp, Symbol>,
}

impl<'a> Writer<'a> {
    fn new(before: &'a Program, edits: &'a EditList) -> Self {
        const GREW: &str = "an optimized program is not larger than it was";
        let mut builder = ProgramBuilder::default();
        for symbol in before.symbols() {
            builder.symbol(symbol.clone()).expect(GREW);
        }
        builder.copy_values(before);
        let literals =
            edits.literals.iter().map(|&number: &Number| builder.constant(number).expect(GREW)).collect::<Vec<_>>();
        let mut rewritten = FxHashMap::default();
        for rewrite in edits.rewrites() {
            rewritten.entry(rewrite.scalar).or_insert_with(|| {
                let found = before.symbols().iter().position(|symbol| symbol.scalar == Some(rewrite.scalar));
                found.map_or_else(|| builder.symbol(scalar_primitive(rewrite.scalar)).expect(GREW), Symbol::from_index)
            });
        }
        for &value in before.inputs() {
            builder.input(value).expect(GREW);
        }
        for &value in before.outputs() {
            builder.output(value).expect(GREW);
        }
        for &value in before.pinned() {
            builder.pin(value).expect(GREW);
        }
        for mention in before.shape_mentions() {
            if let Some(number) = edits.current(mention.number) {
                builder.shape_mention(mention.tensor, mention.position, number).expect(GREW);
            }
        }
        let ops = vec![PackedOption::NONE; before.op_count()];
        Self { before, edits, builder, ops, literals, rewritten }
    }

    fn write_op(&mut self, op: Op) {
        let (before, edits) = (self.before, self.edits);
        let mut symbol = before.symbol_id(op);
        let mut flags = before.flags(op);
        if edits.is_changed(op) {
            if let Some(rewrite) = edits.rewrite(op) {
                symbol = self.rewritten[&rewrite.scalar];
                for &operand in &rewrite.operands {
                    self.push_edited(operand);
                }
            } else {
                for &operand in before.operands(op) {
                    match operand.value().and_then(|value| edits.replacement(value)) {
                        Some(replacement) => self.push_edited(replacement),
                        None => self.push_unchanged(operand),
                    }
                }
            }
            for (slot, result) in before.result_range(op).zip(before.results(op)) {
                let current: Option<Value> = match result.get() {
                    Some(value) if !edits.is_dropped(slot) => edits.current(value),
                    _ => None,
                };
                if current.is_none() {
                    flags |= OpFlags::LITERAL_RESULT;
                }
                self.builder.push_result(current.into());
            }
        } else {
            before.operands(op).iter().for_each(|&operand| self.push_unchanged(operand));
            before.results(op).iter().for_each(|&result| self.builder.push_result(result));
        }
        self.ops[op.index()] = self.builder.finish_op(symbol, flags).expect("ids of the program before").into();
    }

    fn push_unchanged(&mut self, operand: Operand) {
        // Constants keep their ids: those of the program before were copied first, in order.
        self.builder.push_operand(operand);
    }

    fn push_edited(&mut self, operand: Operand) {
        let operand = match operand.constant() {
            Some(constant) => self.literals[constant.index()].into(),
            None => operand,
        };
        self.builder.push_operand(operand);
    }
}

fn scalar_primitive(scalar: ScalarOp) -> SymbolData {
    SymbolData {
        name: format!("prims.{}", scalar.name()),
        flags: SymbolFlags::PRIMITIVE | SymbolFlags::TRUSTED | SymbolFlags::USUAL_PRINTER,
        scalar: Some(scalar),
    }
}

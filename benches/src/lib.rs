//! Programs to measure the optimizer on, of any size.
//!
//! Each generator makes the same program for the same size, with about as many ops as it is asked
//! for, and of a kind that occurs: long chains (deep networks), wide scopes (optimizer steps),
//! nested composites (what thunder records), and shape noise (what it records under symbolic
//! values).

#![allow(clippy::missing_panics_doc)] // sizes are chosen by the benches; a program that cannot be built is a fault here

pub mod peers;

use shapetrace_core::entity::PackedOption;
use shapetrace_core::ir::{
    Number, NumberType, Op, OpFlags, OpSpec, Operand, Program, ProgramBuilder, ScalarOp, Symbol, SymbolData,
    SymbolFlags, Value, ValueKind,
};

/// A kind of program, by name.
pub struct Workload {
    /// Its name in the output of the benches.
    pub name: &'static str,
    /// Makes a program of about this many ops.
    pub make: fn(usize) -> Program,
}

/// A trace of a real compile, from `benches/traces`; `record.py` there wrote it.
pub struct Recorded {
    /// Its name in the output of the benches.
    pub name: &'static str,
    /// The file.
    pub bytes: &'static [u8],
}

macro_rules! recorded {
    ($name:literal) => {
        Recorded { name: $name, bytes: include_bytes!(concat!("../traces/", $name, ".trace")) }
    };
}

/// Traces as thunder hands them to its dead code elimination: of a GPT with constant values, and of
/// a transformer with symbolic values: forward, joint with the backward, and the backward alone.
pub static RECORDED: &[Recorded] = &[
    recorded!("gpt-constant-forward"),
    recorded!("gpt-constant-joint"),
    recorded!("gpt-constant-backward"),
    recorded!("transformer-symbolic-forward"),
    recorded!("transformer-symbolic-joint"),
    recorded!("transformer-symbolic-backward"),
];

/// All kinds.
pub static WORKLOADS: &[Workload] = &[
    Workload { name: "chain", make: chain },
    Workload { name: "wide", make: wide },
    Workload { name: "nested", make: nested },
    Workload { name: "shape-noise", make: shape_noise },
];

/// The symbols that the programs are made of.
struct Symbols {
    primitive: Symbol,
    composite: Symbol,
    query: Symbol,
    multiply: Symbol,
    add: Symbol,
    equal: Symbol,
    signbit: Symbol,
    end: Symbol,
}

/// A builder with shorthands; the sizes are bounded, so nothing it does can be refused.
struct Maker {
    builder: ProgramBuilder,
    symbols: Symbols,
}

impl Maker {
    fn new() -> Self {
        let mut builder = ProgramBuilder::default();
        let mut symbol = |name: &str, flags: SymbolFlags, scalar: Option<ScalarOp>| {
            let flags = flags | SymbolFlags::TRUSTED | SymbolFlags::USUAL_PRINTER;
            builder.symbol(SymbolData { name: name.to_owned(), flags, scalar }).expect("few symbols")
        };
        let primitive = SymbolFlags::PRIMITIVE;
        let symbols = Symbols {
            primitive: symbol("prims.sin", primitive, None),
            composite: symbol("ltorch.sin", SymbolFlags::empty(), None),
            query: symbol("prims.shape", primitive | SymbolFlags::SHAPE_QUERY, None),
            multiply: symbol("prims.mul", primitive, Some(ScalarOp::Mul)),
            add: symbol("prims.add", primitive, Some(ScalarOp::Add)),
            equal: symbol("prims.eq", primitive, Some(ScalarOp::Eq)),
            signbit: symbol("prims.signbit", primitive, Some(ScalarOp::Signbit)),
            end: symbol(
                "prims.python_return",
                primitive | SymbolFlags::RETURN | SymbolFlags::EFFECT | SymbolFlags::DEFINES_NOTHING,
                None,
            ),
        };
        builder.open_top_scope().expect("the first scope");
        Self { builder, symbols }
    }

    fn tensor(&mut self) -> Value {
        self.builder.value(ValueKind::Tensor).expect("bounded")
    }

    fn number(&mut self, number_type: NumberType) -> Value {
        self.builder.value(ValueKind::Number(number_type)).expect("bounded")
    }

    fn literal(&mut self, number: Number) -> Operand {
        self.builder.constant(number).expect("few literals").into()
    }

    fn op(&mut self, symbol: Symbol, operands: &[Operand], results: &[Value]) -> Op {
        let results: Vec<PackedOption<Value>> = results.iter().map(|&value| value.into()).collect();
        self.builder.op(&OpSpec { symbol, flags: OpFlags::empty(), operands, results: &results }).expect("bounded")
    }

    fn finish(self) -> Program {
        self.builder.finish().expect("scopes in pre-order")
    }
}

/// A live op and a dead one, `ops / 2` times, each reading the live one before.
pub fn chain(ops: usize) -> Program {
    let mut maker = Maker::new();
    let mut last = maker.tensor();
    for _ in 0..ops / 2 {
        let (live, dead) = (maker.tensor(), maker.tensor());
        maker.op(maker.symbols.primitive, &[last.into()], &[live]);
        maker.op(maker.symbols.primitive, &[last.into()], &[dead]);
        last = live;
    }
    maker.op(maker.symbols.end, &[last.into()], &[]);
    maker.builder.output(last).expect("known");
    maker.finish()
}

/// One composite with all ops inside it, as a parent of thousands of subsymbols.
pub fn wide(ops: usize) -> Program {
    let mut maker = Maker::new();
    let input = maker.tensor();
    let values: Vec<Value> = (0..ops).map(|_| maker.tensor()).collect();
    let last = values.last().copied().unwrap_or(input);
    let owner = maker.op(maker.symbols.composite, &[input.into()], &[last]);
    maker.op(maker.symbols.end, &[last.into()], &[]);
    maker.builder.open_scope(owner).expect("its only scope");
    let mut before = input;
    for &value in &values {
        maker.op(maker.symbols.primitive, &[before.into(), input.into()], &[value]);
        before = value;
    }
    maker.builder.output(last).expect("known");
    maker.finish()
}

/// Composites of one primitive each, in a chain: what thunder records for most functions. One in
/// four is dead.
pub fn nested(ops: usize) -> Program {
    let mut maker = Maker::new();
    let mut last = maker.tensor();
    let mut composites = Vec::new();
    for index in 0..ops / 2 {
        let result = maker.tensor();
        let op = maker.op(maker.symbols.composite, &[last.into()], &[result]);
        composites.push((op, last, result));
        if index % 4 != 3 {
            last = result;
        }
    }
    maker.op(maker.symbols.end, &[last.into()], &[]);
    maker.builder.output(last).expect("known");
    for (op, operand, result) in composites {
        maker.builder.open_scope(op).expect("its only scope");
        maker.op(maker.symbols.primitive, &[operand.into()], &[result]);
    }
    maker.finish()
}

/// Composites with repeated shape queries and comparisons that nothing reads inside, as thunder
/// records them under symbolic values: ten ops each, of which three matter.
pub fn shape_noise(ops: usize) -> Program {
    let mut maker = Maker::new();
    let mut last = maker.tensor();
    let (rows, columns) = (maker.number(NumberType::Int), maker.number(NumberType::Int));
    let mut composites = Vec::new();
    for _ in 0..ops / 10 {
        let result = maker.tensor();
        let op = maker.op(maker.symbols.composite, &[last.into()], &[result]);
        composites.push((op, last, result));
        last = result;
    }
    maker.op(maker.symbols.end, &[last.into()], &[]);
    maker.builder.output(last).expect("known");
    let one = maker.literal(Number::Int(1));
    for (op, operand, result) in composites {
        maker.builder.open_scope(op).expect("its only scope");
        let product = maker.number(NumberType::Int);
        let product_again = maker.number(NumberType::Int);
        let flags: Vec<Value> = (0..3).map(|_| maker.number(NumberType::Bool)).collect();
        for _ in 0..2 {
            maker.op(maker.symbols.query, &[operand.into()], &[rows, columns]);
        }
        maker.op(maker.symbols.equal, &[rows.into(), one], &[flags[0]]);
        maker.op(maker.symbols.equal, &[columns.into(), columns.into()], &[flags[1]]);
        maker.op(maker.symbols.multiply, &[one, rows.into()], &[product]);
        maker.op(maker.symbols.multiply, &[product.into(), columns.into()], &[product_again]);
        maker.op(maker.symbols.signbit, &[product_again.into()], &[flags[2]]);
        maker.op(maker.symbols.query, &[operand.into()], &[rows, columns]);
        maker.op(maker.symbols.primitive, &[operand.into(), product_again.into()], &[result]);
    }
    maker.finish()
}

#[cfg(test)]
mod tests {
    use super::WORKLOADS;
    use shapetrace_core::passes::{Context, Level, Options};
    use shapetrace_core::verifier::verify;

    /// A bench of a program that is malformed, or in which nothing happens, measures nothing.
    #[test]
    fn workloads_are_well_formed_and_of_the_size_asked_for() {
        for workload in WORKLOADS {
            let program = (workload.make)(1_000);
            assert!(program.op_count().abs_diff(1_000) < 110, "{}: {}", workload.name, program.op_count());
            assert_eq!(verify(&program), [], "{}", workload.name);
            let mut context = Context::default();
            let edits = context.run(&program, Level::Full, &Options::default());
            let kept = program.ops().filter(|&op| edits.is_kept(op)).count();
            assert_eq!(kept < program.op_count(), workload.name != "wide", "{}", workload.name);
        }
    }
}

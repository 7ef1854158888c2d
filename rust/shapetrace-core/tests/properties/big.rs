//! Programs of the size and depth that a trace may have, in a thread with a small stack, so that
//! a recursion whose depth the program decides fails at once.

use shapetrace_core::entity::PackedOption;
use shapetrace_core::ir::{
    apply, NumberType, OpFlags, OpSpec, Operand, OutlineBuilder, Program, Reason, Symbol, SymbolData, Value, ValueKind,
};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_core::text::{parse, print, symbol_flags};
use shapetrace_core::verifier::{verify, verify_form, Form};

const SMALL_STACK: usize = 192 * 1024;

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(SMALL_STACK).spawn(test).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[derive(Default)]
struct Maker {
    outline: OutlineBuilder,
}

impl Maker {
    fn symbol(&mut self, name: &str) -> Symbol {
        let (flags, scalar) = symbol_flags(name);
        self.outline.builder().symbol(SymbolData { name: name.into(), flags, scalar }).expect("few")
    }
    fn tensor(&mut self) -> Value {
        self.outline.builder().value(ValueKind::Tensor).expect("few")
    }
    fn number(&mut self) -> Value {
        self.outline.builder().value(ValueKind::Number(NumberType::Int)).expect("few")
    }
    fn op(&mut self, symbol: Symbol, operands: &[Value], results: &[Value]) {
        let operands: Vec<Operand> = operands.iter().map(|&value| value.into()).collect();
        let results: Vec<PackedOption<Value>> = results.iter().map(|&value| value.into()).collect();
        self.outline.op(&OpSpec { symbol, flags: OpFlags::empty(), operands: &operands, results: &results });
    }
    fn finish(mut self, returned: &[Value]) -> Program {
        let symbol = self.symbol("return");
        self.op(symbol, returned, &[]);
        self.outline.finish().expect("well formed").0
    }
}

/// Both levels run; the verifier is content before and after; how many ops level "full" removed.
fn optimize(program: &Program) -> (usize, Program) {
    assert_eq!(verify(program), []);
    let mut context = Context::default();
    context.run(program, Level::Compat, &Options::default());
    let edits = context.run(program, Level::Full, &Options { floor_division: true, ..Default::default() });
    let removed = Reason::ALL.iter().map(|&reason| edits.removed_count(reason)).sum();
    let after = apply(program, edits);
    assert_eq!(verify_form(&after, Form::Optimized), []);
    (removed, after)
}

#[test]
fn a_chain_of_a_million_ops() {
    on_a_small_stack(|| {
        let mut maker = Maker::default();
        let (sin, mul, shape) = (maker.symbol("prims.sin"), maker.symbol("prims.mul"), maker.symbol("prims.shape"));
        let mut x = maker.tensor();
        let mut n = maker.number();
        for _ in 0..250_000 {
            let (y, i, m, dead) = (maker.tensor(), maker.number(), maker.number(), maker.tensor());
            maker.op(sin, &[x], &[y]);
            maker.op(shape, &[y], &[i]);
            maker.op(mul, &[n, i], &[m]);
            maker.op(sin, &[y], &[dead]);
            (x, n) = (y, m);
        }
        let (removed, _) = optimize(&maker.finish(&[x, n]));
        assert_eq!(removed, 250_000);
    });
}

#[test]
fn nesting_of_ten_thousand() {
    on_a_small_stack(|| {
        const DEPTH: usize = 10_000;
        let mut maker = Maker::default();
        let (f, sin, shape, reshape) = (
            maker.symbol("ltorch.f"),
            maker.symbol("prims.sin"),
            maker.symbol("prims.shape"),
            maker.symbol("prims.reshape"),
        );
        let (x, y) = (maker.tensor(), maker.tensor());
        for _ in 0..DEPTH {
            maker.op(f, &[x], &[y]);
            maker.outline.open_scope();
            let (dead, i, j) = (maker.tensor(), maker.number(), maker.number());
            maker.op(sin, &[x], &[dead]);
            maker.op(shape, &[x], &[i, j]);
        }
        let i = maker.number();
        maker.op(shape, &[x], &[i]);
        maker.op(reshape, &[x, i], &[y]);
        while maker.outline.close_scope() {}
        let program = maker.finish(&[y]);
        let (removed, after) = optimize(&program);
        assert_eq!(removed, 2 * DEPTH);
        let text = print(&after);
        assert_eq!(print(&parse(&text).expect("it is printed so")), text);
    });
}

#[test]
fn one_op_with_a_hundred_thousand_operands_and_results() {
    on_a_small_stack(|| {
        const WIDTH: usize = 100_000;
        let mut maker = Maker::default();
        let (f, sin) = (maker.symbol("ltorch.f"), maker.symbol("prims.sin"));
        let operands: Vec<Value> = (0..WIDTH).map(|_| maker.tensor()).collect();
        // Every second result is handed back.
        let results: Vec<Value> = (0..WIDTH).map(|i| if i % 2 == 0 { operands[i] } else { maker.tensor() }).collect();
        maker.op(f, &operands, &results);
        maker.outline.open_scope();
        for i in (1..WIDTH).step_by(2) {
            maker.op(sin, &[operands[i]], &[results[i]]);
        }
        maker.outline.close_scope();
        maker.op(f, &results, &results);
        let program = maker.finish(&results[..10]);
        let (removed, after) = optimize(&program);
        assert_eq!(removed, 1, "the second only hands back");
        let text = print(&after);
        assert_eq!(print(&parse(&text).expect("it is printed so")), text);
    });
}

#[test]
fn a_scope_with_a_hundred_thousand_duplicates() {
    on_a_small_stack(|| {
        const WIDTH: usize = 100_000;
        let mut maker = Maker::default();
        let (shape, add, pair) = (maker.symbol("prims.shape"), maker.symbol("prims.add"), maker.symbol("ltorch.pair"));
        let x = maker.tensor();
        let (t, mut last) = (maker.tensor(), maker.tensor());
        let first = maker.number();
        maker.op(shape, &[x], &[first]);
        for _ in 0..WIDTH {
            let (i, n, new) = (maker.number(), maker.number(), maker.tensor());
            maker.op(shape, &[x], &[i]);
            maker.op(add, &[i, first], &[n]);
            maker.op(pair, &[x, n], &[t, new]);
            last = new;
        }
        let (removed, after) = optimize(&maker.finish(&[t, last]));
        assert_eq!(removed, 3 * WIDTH - 3, "one sum, and the first and the last pair stay");
        assert_eq!(after.op_count(), 5);
    });
}

#[test]
fn many_small_scopes() {
    on_a_small_stack(|| {
        const COUNT: usize = 100_000;
        let mut maker = Maker::default();
        let (f, shape, reshape) =
            (maker.symbol("ltorch.f"), maker.symbol("prims.shape"), maker.symbol("prims.reshape"));
        let mut x = maker.tensor();
        for _ in 0..COUNT {
            let (y, i, j) = (maker.tensor(), maker.number(), maker.number());
            maker.op(f, &[x], &[y]);
            maker.outline.open_scope();
            maker.op(shape, &[x], &[i]);
            maker.op(shape, &[x], &[j]);
            maker.op(reshape, &[x, j], &[y]);
            maker.outline.close_scope();
            x = y;
        }
        let (removed, _) = optimize(&maker.finish(&[x]));
        assert_eq!(removed, COUNT);
    });
}

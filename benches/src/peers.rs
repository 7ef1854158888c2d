//! The graphs on which `benches/peers.py` compares this optimizer with others: flat, and made the same there.

use shapetrace_core::ir::{NumberType, Program, Value};

use crate::{chain, Maker, Workload};

/// All of them.
pub static GRAPHS: &[Workload] = &[
    Workload { name: "chain", make: chain },
    Workload { name: "lanes", make: lanes },
    Workload { name: "repeats", make: repeats },
];

/// How many lanes [`lanes`] has.
const LANES: usize = 100;

/// A hundred chains beside each other that take turns, as the parts of an optimizer step do; every
/// second one is dead.
pub fn lanes(ops: usize) -> Program {
    let mut maker = Maker::new();
    let inputs: Vec<Value> = (0..LANES).map(|_| maker.tensor()).collect();
    let mut last = inputs.clone();
    for index in 0..ops {
        let lane = index % LANES;
        let result = maker.tensor();
        maker.op(maker.symbols.primitive, &[last[lane].into(), inputs[lane].into()], &[result]);
        last[lane] = result;
    }
    for &value in last.iter().step_by(2) {
        maker.builder.output(value).expect("known");
    }
    let returned: Vec<_> = last.iter().step_by(2).map(|&value| value.into()).collect();
    maker.op(maker.symbols.end, &returned, &[]);
    maker.finish()
}

/// Arithmetic on integers that is done twice: `a = x + y; b = x + y; x = a * b`, again and again.
pub fn repeats(ops: usize) -> Program {
    let mut maker = Maker::new();
    let (mut x, y) = (maker.number(NumberType::Int), maker.number(NumberType::Int));
    for _ in 0..ops / 3 {
        let [a, b, product] = [(); 3].map(|()| maker.number(NumberType::Int));
        maker.op(maker.symbols.add, &[x.into(), y.into()], &[a]);
        maker.op(maker.symbols.add, &[x.into(), y.into()], &[b]);
        maker.op(maker.symbols.multiply, &[a.into(), b.into()], &[product]);
        x = product;
    }
    maker.op(maker.symbols.end, &[x.into()], &[]);
    maker.builder.output(x).expect("known");
    maker.finish()
}

#[cfg(test)]
mod tests {
    use super::GRAPHS;
    use shapetrace_core::passes::{Context, Level, Options};
    use shapetrace_core::verifier::verify;

    /// The comparison expects as many ops to be left as the others leave.
    #[test]
    fn the_graphs_are_well_formed_and_half_or_a_third_of_them_goes() {
        for (graph, kept) in GRAPHS.iter().zip([1_501, 1_501, 2_001]) {
            let program = (graph.make)(3_000);
            assert_eq!(program.op_count(), 3_001, "{}", graph.name);
            assert_eq!(verify(&program), [], "{}", graph.name);
            let mut context = Context::default();
            let edits = context.run(&program, Level::Full, &Options::default());
            assert_eq!(program.ops().filter(|&op| edits.is_kept(op)).count(), kept, "{}", graph.name);
        }
    }
}

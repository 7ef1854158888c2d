//! Random expressions through the numbering: what they are simplified to has the same value.

use proptest::prelude::*;
use shapetrace_core::ir::{
    apply, Number, NumberType, OpFlags, OpSpec, Operand, ProgramBuilder, ScalarOp, SymbolData, Value, ValueKind,
};
use shapetrace_core::passes::shape_arithmetic::rules::evaluate;
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_core::text::{print, symbol_flags};

use crate::checks::WORLDS;
use crate::interpreter::{Policy, World};
use crate::optimizer::cases;

/// The type of the result on operands of these types, by trying it.
fn result_type(op: ScalarOp, a: NumberType, b: NumberType) -> Option<NumberType> {
    let sample = |number_type| match number_type {
        NumberType::Bool => Some(Number::Bool(true)),
        NumberType::Int => Some(Number::Int(3)),
        _ => None,
    };
    evaluate(op, sample(a)?, sample(b)?).map(Number::number_type)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1500), failure_persistence: None, ..Default::default() })]

    #[test]
    fn simplified_expressions_have_the_same_value(
        steps in prop::collection::vec(any::<(u8, u8, u8, u8)>(), 1..40),
        floor_division in any::<bool>(),
    ) {
        let mut builder = ProgramBuilder::default();
        let mut numbers: Vec<(Operand, NumberType)> = Vec::new();
        let x = builder.named_value("x", ValueKind::Tensor)?;
        builder.input(x)?;
        for (name, number_type) in [("n", NumberType::Int), ("m", NumberType::Int), ("b", NumberType::Bool)] {
            let value = builder.named_value(name, ValueKind::Number(number_type))?;
            builder.input(value)?;
            numbers.push((value.into(), number_type));
        }
        for number in [0, 1, -1, 2, -3].map(Number::Int).into_iter().chain([Number::Bool(true), Number::Bool(false)]) {
            numbers.push((builder.constant(number)?.into(), number.number_type()));
        }
        builder.open_top_scope()?;
        let symbol = |name: &str| {
            let (flags, scalar) = symbol_flags(name);
            SymbolData { name: name.into(), flags, scalar }
        };
        let shape = builder.symbol(symbol("prims.shape"))?;
        let dimensions: Vec<Value> = ["i", "j"]
            .into_iter()
            .map(|name| builder.named_value(name, ValueKind::Number(NumberType::Int)))
            .collect::<Result<_, _>>()?;
        let results: Vec<_> = dimensions.iter().map(|&value| value.into()).collect();
        builder.op(&OpSpec { symbol: shape, flags: OpFlags::empty(), operands: &[x.into()], results: &results })?;
        numbers.extend(dimensions.iter().map(|&value| (value.into(), NumberType::Int)));
        let mut made = Vec::new();
        for (index, &(op, a, b, to)) in steps.iter().enumerate() {
            let scalar = ScalarOp::ALL[usize::from(op) % ScalarOp::ALL.len()];
            let (first, type_a) = numbers[usize::from(a) % numbers.len()];
            let (mut second, mut type_b) = numbers[usize::from(b) % numbers.len()];
            let number_type = if scalar == ScalarOp::Convert {
                type_b = [NumberType::Int, NumberType::Bool][usize::from(to % 2)];
                second = builder.constant(Number::Type(type_b))?.into();
                Some(type_b)
            } else {
                result_type(scalar, type_a, type_b)
            };
            // Floats are made by `fmod` alone and are converted at once.
            let Some(number_type) = number_type.filter(|&t| t != NumberType::Float) else { continue };
            let value = builder.named_value(&format!("v{index}"), ValueKind::Number(number_type))?;
            let symbol = builder.symbol(symbol(&format!("prims.{}", scalar.name())))?;
            let operands = &[first, second][..scalar.arity()];
            builder.op(&OpSpec { symbol, flags: OpFlags::empty(), operands, results: &[value.into()] })?;
            numbers.push((value.into(), number_type));
            made.push(Operand::from(value));
        }
        // Not the return, which would pin the names: an op from elsewhere reads all of them.
        let reader = builder.symbol(symbol("my.save"))?;
        builder.op(&OpSpec { symbol: reader, flags: OpFlags::empty(), operands: &made, results: &[] })?;
        let program = builder.finish()?;
        let mut context = Context::default();
        let options = Options { floor_division, ..Default::default() };
        let after = apply(&program, context.run(&program, Level::Full, &options));
        for seed in 0..WORLDS {
            let mut world = World::new(&program, seed);
            let policy = Policy { opaque: true, random: false };
            let Ok(expected) = world.run(&program, policy) else { continue };
            let outcome = world.run(&after, policy);
            prop_assert_eq!(Ok(expected), outcome, "{}{}", print(&program), print(&after));
        }
    }
}

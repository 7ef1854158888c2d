//! Any sequence of calls gives errors that say why, or a program; ids may be of anything or nothing.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use shapetrace_core::entity::{Entity, PackedOption};
use shapetrace_core::ir::{
    Constant, Number, NumberType, Op, OpFlags, OpSpec, Operand, ProgramBuilder, ScalarOp, Symbol, SymbolData,
    SymbolFlags, Value, ValueKind,
};

/// An id: most are of something that is there.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Id {
    Near(u8),
    Far(u32),
}

impl Id {
    fn of<T: Entity>(self) -> T {
        T::from_index(match self {
            Self::Near(index) => usize::from(index % 24),
            // Ids are 31 bits wide.
            Self::Far(index) => (index >> 1) as usize & 0x3fff_ffff,
        })
    }
}

#[derive(Arbitrary, Debug)]
enum Call {
    Symbol { name: u8, flags: u16, scalar: Option<u8> },
    Value(u8),
    Named(u8, u8),
    Int(i64),
    Float(f64),
    Opaque(u32),
    Hint(Id, i8),
    OpenTop,
    OpenScope(Id),
    Op { symbol: Id, flags: u8, operands: Vec<(bool, Id)>, results: Vec<Option<Id>> },
    Operand(bool, Id),
    Result(Option<Id>),
    FinishOp(Id, u8),
    Input(Id),
    Output(Id),
    Pin(Id),
    PinOpen,
    Mention(Id, u32, Id),
}

fn kind(bits: u8) -> ValueKind {
    match bits % 6 {
        0 | 1 => ValueKind::Tensor,
        2 => ValueKind::Number(NumberType::Int),
        3 => ValueKind::Number(NumberType::Bool),
        4 => ValueKind::Number(NumberType::Float),
        _ => ValueKind::Other,
    }
}

fn operand(is_value: bool, id: Id) -> Operand {
    if is_value {
        id.of::<Value>().into()
    } else {
        id.of::<Constant>().into()
    }
}

fn make(builder: &mut ProgramBuilder, call: &Call) -> Result<(), String> {
    match call {
        Call::Symbol { name, flags, scalar } => {
            let scalar = scalar.map(|index| ScalarOp::ALL[usize::from(index) % ScalarOp::ALL.len()]);
            let flags = SymbolFlags::from_bits_truncate(*flags);
            builder.symbol(SymbolData { name: format!("my.f{}", name % 8), flags, scalar }).map(drop)
        }
        Call::Value(bits) => builder.value(kind(*bits)).map(drop),
        Call::Named(name, bits) => builder.named_value(&format!("v{}", name % 16), kind(*bits)).map(drop),
        Call::Int(int) => builder.constant(Number::Int(*int)).map(drop),
        Call::Float(float) => builder.constant(Number::Float(*float)).map(drop),
        Call::Opaque(which) => builder.constant(Number::Opaque(*which)).map(drop),
        Call::Hint(value, int) => builder.hint(value.of(), Number::Int((*int).into())),
        Call::OpenTop => builder.open_top_scope().map(drop),
        Call::OpenScope(owner) => builder.open_scope(owner.of::<Op>()).map(drop),
        Call::Op { symbol, flags, operands, results } => {
            let operands: Vec<Operand> = operands.iter().map(|&(is_value, id)| operand(is_value, id)).collect();
            let results: Vec<PackedOption<Value>> =
                results.iter().map(|id| id.map_or(PackedOption::NONE, |id| id.of::<Value>().into())).collect();
            let flags = OpFlags::from_bits_truncate(*flags);
            let spec = OpSpec { symbol: symbol.of::<Symbol>(), flags, operands: &operands, results: &results };
            builder.op(&spec).map(drop)
        }
        Call::Operand(is_value, id) => {
            builder.push_operand(operand(*is_value, *id));
            Ok(())
        }
        Call::Result(id) => {
            builder.push_result(id.map_or(PackedOption::NONE, |id| id.of::<Value>().into()));
            Ok(())
        }
        Call::FinishOp(symbol, flags) => builder.finish_op(symbol.of(), OpFlags::from_bits_truncate(*flags)).map(drop),
        Call::Input(value) => builder.input(value.of()),
        Call::Output(value) => builder.output(value.of()),
        Call::Pin(value) => builder.pin(value.of()),
        Call::PinOpen => builder.pin_open_results(),
        Call::Mention(tensor, position, number) => builder.shape_mention(tensor.of(), *position, number.of()),
    }
    .map_err(|error| error.to_string())
}

fuzz_target!(|calls: Vec<Call>| {
    let mut builder = ProgramBuilder::default();
    for call in &calls {
        if let Err(words) = make(&mut builder, call) {
            assert!(!words.is_empty());
        }
    }
    if let Ok(program) = builder.finish() {
        shapetrace_fuzz::exercise(&program);
    }
});

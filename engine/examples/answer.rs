//! Answers one prompt with nothing but the forward pass: `answer MODEL TOKENS TEXT` prints as many tokens as asked for.
//!
//! Whatever else answers greedily with the same model, however it got its KV cache, must print the same text.
#![expect(clippy::print_stdout, reason = "it prints the answer")]

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::Path;

use lynx_engine::{
    BLOCK_TOKENS, BlockId, ChatTemplate, Gguf, KvPool, Logits, LogitsFor, Message, Model, Sampling,
    Span, TokenId, Tokenizer, Workers,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, count, text] = &arguments[..] else {
        return Err("usage: answer MODEL TOKENS TEXT".into());
    };
    let path = Path::new(path);
    let gguf = Gguf::open(path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let template = ChatTemplate::from_gguf(&gguf, tokenizer.special_texts())?;
    let said = Message {
        role: "user".to_owned(),
        content: text.clone(),
    };
    let prompt = tokenizer.prompt(&template.render(&[said])?)?;
    let answer = continuation(&Model::open(path)?, &prompt, count.parse()?)?;
    println!("{}", tokenizer.decode(&answer));
    Ok(())
}

/// The tokens that follow the prompt, past the model's own end if it has one: each the likeliest.
fn continuation(
    model: &Model,
    prompt: &[TokenId],
    count: usize,
) -> Result<Vec<TokenId>, Box<dyn Error>> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let workers = Workers::new(threads)?;
    let blocks: Vec<BlockId> = (0..)
        .map(BlockId)
        .take((prompt.len() + count).div_ceil(BLOCK_TOKENS))
        .collect();
    let mut pool = KvPool::new(model.config(), blocks.len());
    let mut logits = Logits::default();
    let mut tokens = prompt.to_vec();
    let mut start = 0;
    while tokens.len() < prompt.len() + count {
        let span = Span {
            tokens: &tokens[start..],
            start: u32::try_from(start)?,
            blocks: &blocks,
            logits: LogitsFor::Last,
        };
        model.forward(&workers, &mut pool, &[span], &mut (), &mut logits)?;
        start = tokens.len();
        tokens.push(Sampling::GREEDY.sample(logits.row(0), u32::try_from(start)?));
    }
    Ok(tokens.split_off(prompt.len()))
}

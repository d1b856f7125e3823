//! `lynx bench ttft`: the demo's table over several prompts, lengths, links and both scenarios.

use anyhow::Result;
use lynx_units::{BitRate, Width};

use super::SEED;
use crate::args::Ttft;
use crate::chat::Chat;
use crate::cluster::{Cluster, Options, RunSpec};
use crate::prompts::{self, Source};
use crate::run::{Method, RunResult, Scenario};
use crate::terminal::Style;

/// Tokens of every answer: the table looks at the 64th.
pub const ANSWER: u32 = 64;

/// Four bits: the width whose times the specification promises.
const ANCHOR_BITS: u8 = 4;

/// One row of the plan.
#[derive(Clone, Debug)]
struct Setting {
    scenario: Scenario,
    tokens: usize,
    prompts: usize,
    link: BitRate,
}

/// The full bench: lengths from 512 to 4096 on the demo's link, one length on others, the cold scenario beside the warm one.
/// The quick one: two prompts.
fn plan(args: &Ttft) -> Vec<Setting> {
    let setting = |scenario, tokens, prompts, megabits| Setting {
        scenario,
        tokens,
        prompts,
        link: BitRate::from_megabits_per_second(megabits),
    };
    use Scenario::{Cold, Warm};
    let mut plan = if args.output.quick {
        vec![setting(Warm, 2048, 2, 100)]
    } else {
        vec![
            setting(Warm, 512, 3, 100),
            setting(Warm, 1024, 3, 100),
            setting(Warm, 2048, 6, 100),
            setting(Warm, 4096, 3, 100),
            setting(Warm, 2048, 2, 50),
            setting(Warm, 2048, 2, 400),
            setting(Warm, 2048, 2, 1000),
            setting(Cold, 2048, 3, 100),
            setting(Cold, 2048, 2, 20),
        ]
    };
    for setting in &mut plan {
        setting.scenario = args.scenario.unwrap_or(setting.scenario);
        setting.tokens = args
            .prompt_tokens
            .map_or(setting.tokens, |tokens| tokens as usize);
        setting.link = args.link.unwrap_or(setting.link);
        setting.prompts = args
            .prompts
            .map_or(setting.prompts, |prompts| prompts as usize);
    }
    plan.dedup_by_key(|setting| (setting.scenario, setting.tokens, setting.link));
    plan
}

/// Runs the bench, and tells each run as it ends.
///
/// # Errors
/// Where the nodes can't run, or a request fails.
pub async fn run(
    args: &Ttft,
    chat: &Chat,
    options: Options,
    style: Style,
    mut each: impl FnMut(&RunResult),
) -> Result<Vec<RunResult>> {
    let plan = plan(args);
    let sources = prompts::corpus(SEED).sources;
    let steps: usize = plan
        .iter()
        .map(|setting| setting.prompts.min(sources.len()) * Method::ALL.len())
        .sum();
    let bar = style.progress("runs", steps as u64);
    let mut runs = Vec::new();
    for setting in plan {
        let options = Options {
            link: setting.link,
            max_tokens: u32::try_from(setting.tokens)? + ANSWER,
            ..options.clone()
        };
        let mut cluster = Cluster::start(&options).await?;
        for source in sources.iter().take(setting.prompts) {
            for run in compare(&mut cluster, chat, source, &setting, args.temperature).await? {
                each(&run);
                runs.push(run);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// Every method on one prompt.
async fn compare(
    cluster: &mut Cluster,
    chat: &Chat,
    source: &Source,
    setting: &Setting,
    temperature: f32,
) -> Result<Vec<RunResult>> {
    let (prompt, tokens) = chat.prompt(source, setting.tokens)?;
    let mut runs = Vec::new();
    for method in Method::ALL {
        let spec = RunSpec {
            method,
            prompt: tokens.clone(),
            max_tokens: ANSWER,
            temperature,
            seed: 0,
            anchor: Width::from_bits(ANCHOR_BITS),
        };
        cluster.prepare(setting.scenario, &tokens).await?;
        let outcome = cluster.run(&spec, |_| {}).await?;
        runs.push(outcome.into_result(
            method,
            setting.scenario,
            &prompt.name,
            tokens.len(),
            setting.link,
        ));
    }
    Ok(runs)
}

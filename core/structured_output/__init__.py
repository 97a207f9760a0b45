"""Output that follows a form: a JSON schema, a regular expression, a choice, an EBNF grammar, a structural tag.

    busy loop                      grammar thread                    trial process
    Grammars.constrain ── form ──▶ GrammarCompiler ────── form ────▶ write_grammar, first masks
      the request is held            TrialProcess  ◀─── grammar ────   limits: CPU time, memory, stack
      WAKEUP ◀───────── Future ──  a matcher, kept                   a form that is too much ends it, and nothing else

    busy loop                      mask threads
    Constraint.accept ───────────▶ the next mask of each request
    Grammars.wait_for_masks ◀────  within 20 ms, or the request is left out of the step

Matchers live here, beside the scheduler, and not in the model runner: what a step's rows may choose goes out with the
step, so that no two ranks have to agree. llguidance (https://github.com/guidance-ai/llguidance) does the parsing; its
limits bound a mask, but it can neither be interrupted nor does it survive a grammar that is nested too deeply, which is
what the trial process is for.
"""

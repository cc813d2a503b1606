"""Sentences of a reflection in Japanese."""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from collections.abc import Sequence

from memory_api.reflection.rules.japanese_phrases import (
    cause,
    changes,
    code,
    codes,
    differs,
    listed,
    quote,
    quoted,
    stop,
)
from memory_api.reflection.rules.japanese_structure import JapaneseStructure
from memory_api.trace_analysis.arguments import (
    ArgumentChange,
    is_named,
)
from memory_api.trace_analysis.failures import is_exit_code
from memory_api.trace_analysis.findings import (
    ArgumentOrigin,
    AttemptContrast,
    Crash,
    FailedAssertion,
    FailedCall,
    FailureStreak,
    FinalAnswer,
    Findings,
    LookupHop,
    MissingOutput,
    Refusal,
    RepairedCall,
    RepeatedAttempt,
    RepeatedCall,
    UnconfirmedChange,
)
from memory_api.trace_analysis.ground_truth import ActionDeviation
from memory_api.trace_analysis.structure import Dialogue, SlowestCall
from memory_api.traces.schemas import OutcomeType

OUTCOMES = {
    OutcomeType.SUCCESS: "成功",
    OutcomeType.FAILURE: "失敗",
    OutcomeType.PARTIAL: "一部達成",
    OutcomeType.TIMEOUT: "タイムアウト",
    OutcomeType.ERROR: "エラー",
}


class JapaneseNarrative(JapaneseStructure):
    """Implements `NarrativeLanguage`."""

    space = ""

    def opening(self, task: str, outcome: OutcomeType | None) -> str:
        result = f"結果：{OUTCOMES[outcome]}。" if outcome else ""
        return f"タスク：{stop(task)}{result}" if task else result

    def crash(self, c: Crash) -> str:
        text = f"最後のエラーイベント（{c.event_id}）の内容は{quote(c.message or 'なし')}"
        if c.is_of_call:
            text = f"{code(c.preceding_call or '')}（{c.preceding_call_event_id}）がエラーイベント {c.event_id} で失敗した{cause(c.message)}"
        if c.location:
            text += f"トレースバックの末尾は {code(c.location)} である。"
        if c.expected_type and c.actual_type:
            text += (
                f"{code(c.expected_type)} 型が必要な箇所への入力は {code(c.actual_type)} 型だった。"
            )
        if c.is_of_call:
            return text
        if c.preceding_call:
            return (
                text
                + f"直前の呼び出しは {code(c.preceding_call)}（{c.preceding_call_event_id}）である。"
            )
        return text + "このイベントより前にツールの呼び出しはない。"

    def answered(self, a: FinalAnswer, won: bool) -> str:
        if not a.given_answer:
            return f"回答がないまま終了した。期待された回答は{quote(a.expected_answer or '')}"
        where = f"（{a.event_id}）" if a.event_id else ""
        if a.is_correct is None:
            text = f"回答は「{a.given_answer}」{where}である。"
        else:
            verdict = "正解" if a.is_correct else "不正解"
            text = f"回答「{a.given_answer}」{where}は環境により{verdict}と判定された。"
        if a.is_correct is True or (won and a.relation_to_expected in (None, "same", "unknown")):
            return text + self._source_of(a)
        return text + self._expected(a)

    def _expected(self, a: FinalAnswer) -> str:
        if a.expected_answer is None:
            return "正解はトレースに含まれていない。"
        if a.relation_to_expected == "same":
            return f"期待された回答「{a.expected_answer}」との違いは表記だけである。"
        if a.relation_to_expected == "contains_expected":
            return f"期待された回答「{a.expected_answer}」のほかに余分な語を含む。"
        if a.relation_to_expected == "part_of_expected":
            return f"期待された回答「{a.expected_answer}」の一部だけである。"
        return f"期待された回答は{quote(a.expected_answer)}"

    def _source_of(self, a: FinalAnswer) -> str:
        if a.given_answer_call:
            return (
                f"{code(a.given_answer_call)}（{a.given_answer_event_id}）の応答がこの回答を含む。"
            )
        return "この回答をそのまま含む応答はない。" if a.is_searched else ""

    def answer_seen(self, a: FinalAnswer) -> str:
        text = f"{code(a.expected_answer_call or '')}（{a.expected_answer_event_id}）の応答が、期待された回答を含む。"
        if a.given_answer_event_id is None:
            return text + ("実際の回答を含む応答はない。" if a.is_searched else "")
        return text + (
            "同じ応答に実際の回答もある。"
            if a.given_answer_event_id == a.expected_answer_event_id
            else ""
        )

    def answer_unseen(self, a: FinalAnswer) -> str:
        if a.given_answer_event_id is None:
            which = "実際の回答も期待された回答も" if a.expected_answer else "実際の回答は"
            return f"{which}、そのままの形ではどの応答にも含まれていない。"
        text = f"{code(a.given_answer_call or '')}（{a.given_answer_event_id}）の応答が実際の回答を含む。"
        if a.expected_answer is None:
            return text
        text += "期待された回答を含む応答はない。"
        if a.unsearched_names:
            text += f"質問にある{quoted(a.unsearched_names)}はどの呼び出しにも現れない。"
        return text

    def no_calls(self) -> str:
        return "トレースにツールの呼び出しはない。"

    def reasoning(self, a: FinalAnswer) -> str:
        where = f"（{a.reasoning_event_id}）" if a.reasoning_event_id else ""
        return f"回答直前のエージェントの発言{where}：{quote(a.reasoning)}"

    def ending(self, f: Findings) -> str:
        text = f"トレースは{f.call_count}回目の呼び出し {code(f.last_call or '')}（{f.last_call_event_id}）で終わり、その後の発言や回答はない。"
        if f.last_failure_message and not f.failure_streaks:
            text += f"この呼び出しは失敗している{cause(f.last_failure_message)}"
        return text

    def streak(self, s: FailureStreak) -> str:
        more = " ほか" if s.count > len(s.event_ids[:3]) else ""
        tool = f"{code(s.tool)} の" if s.tool else ""
        if s.is_reported:
            text = f"{tool}呼び出しが、間に成功を挟まず{s.count}回失敗した（{listed(s.event_ids[:3])}{more}）：{quoted(s.tried_arguments[:4] or s.messages)}。"
        else:
            text = f"{tool}呼び出し{s.count}回（{listed(s.event_ids[:3])}{more}）に対し、続けて{quoted(s.messages)}という応答が返った。"
            text += (
                f"引数には{quoted(s.tried_arguments[:4])}が含まれる。" if s.tried_arguments else ""
            )
        return text + (
            f"すべての引数が{quoted(list(dict.fromkeys(s.shared_words.split()))[:6])}を含む。"
            if s.shared_words and len(s.tried_arguments) > 1
            else ""
        )

    def unused_suggestions(self, s: FailureStreak) -> str:
        if s.quoted_argument:
            return f"失敗した引数 {code(s.quoted_argument)} は、引用符を除くと応答が示した候補と一致する。"
        return f"応答は候補として{quoted(s.untried_alternatives)}を示したが、どの呼び出しも使っていない。"

    def repeat(self, r: RepeatedCall) -> str:
        more = " ほか" if r.count > len(r.event_ids[:3]) else ""
        end = "実行され、毎回失敗した" if r.failed_count == r.count else "実行された"
        text = f"{code(r.call)} は同じ内容で{r.count}回{end}（{listed(r.event_ids[:3])}{more}）"
        return text + (cause(r.message) if r.message else "。")

    def departures(self, d: Sequence[ActionDeviation]) -> str:
        parts: list[str] = []
        for item in d[:3]:
            if item.kind == "changed":
                wrong = listed([self._expected_value(c) for c in item.changes[:3]])
                parts.append(f"{code(item.tool)}（{item.event_id}）の引数が期待と異なる：{wrong}。")
            elif item.kind == "extra":
                parts.append(f"{code(item.call)}（{item.event_id}）は期待された呼び出しではない。")
        missing = [item.call for item in d if item.kind == "missing"]
        if missing:
            rest = f" ほか{len(missing) - 2}件" if len(missing) > 2 else ""
            parts.append(f"期待された {codes(missing[:2])}{rest} は呼び出されていない。")
        return "".join(parts)

    def _expected_value(self, c: ArgumentChange) -> str:
        given, wanted = (
            code(c.before) if c.before else "なし",
            code(c.after) if c.after else "なし",
        )
        return f"{code(c.name)} は {given}（期待値は {wanted}）"

    def missing_outputs(self, u: Sequence[MissingOutput]) -> str:
        text = f"期待された出力{quoted([x.expected_output for x in u[:3]])}を含むエージェントの発言はない。"
        return text + (
            f"数値を含む最後の発言（{u[0].event_id}）：{quote(u[0].closest_message)}"
            if u[0].closest_message
            else ""
        )

    def refusal(self, r: Refusal) -> str:
        if r.kind == "handed_over":
            return f"引き継ぎの呼び出し（{r.event_id}）の内容：{quote(r.quote)}"
        about = (
            f"「{r.request}」への返答（{r.event_id}）"
            if len(r.request) > 10
            else f"発言（{r.event_id}）"
        )
        text = f"{about}に断りの表現がある：{quote(r.quote)}"
        return text + (f"その後、{code(r.later_call)} を呼び出している。" if r.later_call else "")

    def unconfirmed(self, u: UnconfirmedChange) -> str:
        return f"{code(u.tool)}（{u.event_id}）の直前のユーザーの発言は「{u.user_message}」で、同意の語句は検出されなかった。規則の記載：{quote(u.consent_rule)}"

    def assertions(self, a: Sequence[FailedAssertion]) -> str:
        first = a[0]
        name = f"テスト {code(first.test)} が失敗した" if first.test else "テストが失敗した"
        if first.expected and first.actual:
            text = f"{name}：期待値は {code(first.expected)}、実際の値は {code(first.actual)}。"
        else:
            text = f"{name}：{quote(first.message)}" if first.message else f"{name}。"
        others = [x.test for x in a[1:4]]
        return text + (f"ほかに失敗したテスト：{codes(others)}。" if others else "")

    def unrepaired(self, f: FailedCall, more: int) -> str:
        if f.failure_source == "message":
            return f"{code(f.call)}（{f.event_id}）の次の発言は{quote(f.message)}"
        if f.failure_source == "wording":
            return f"{code(f.call)}（{f.event_id}）の応答は{quote(f.message)}"
        text = f"{code(f.call)}（{f.event_id}）が失敗した"
        text += cause(f.message) if is_exit_code(f.message) else "。"
        text += f"応答は{quote(f.message)}" if f.message and not is_exit_code(f.message) else ""
        is_last_word = f.tool and not f.tool_succeeded_later
        text += f"その後に成功した {code(f.tool)} の呼び出しはない。" if is_last_word else ""
        return text + (f"ほかに{more}回の呼び出しも失敗した。" if more > 0 else "")

    def invented(self, f: FailedCall) -> str:
        first = f.ungrounded_event_id
        earlier = "それ" if first in (None, f.event_id) else f"{first} "
        return f"引数 {codes(f.ungrounded_arguments)} の値は、{earlier}より前のどのイベントにも現れない。"

    def retry(self, r: RepairedCall) -> str:
        if (
            r.argument_changes
            and len(r.argument_changes) <= 3
            and all(is_named(c) for c in r.argument_changes)
        ):
            return self._retry_with_values(r)
        if r.failure_count > 1 and r.tool:
            text = f"{code(r.tool)} は{r.failure_count}回{_failed(r, '失敗し', '結果が得られず')}、最後は {code(r.failed_call)}（{r.failed_event_id}）だった{cause(r.message)}"
        else:
            text = f"{code(r.failed_call)}（{r.failed_event_id}）は{_failed(r, '失敗した', '結果が得られなかった')}{cause(r.message)}"
        if not r.argument_changes:
            after = f"{codes(r.write_calls_between)} の後、" if r.write_calls_between else ""
            return f"{text}{after}同じ呼び出し（{r.event_id}）ではエラーが検出されなかった。"
        text += (
            f"次にエラーが検出されなかった呼び出しは {code(r.successful_call)}（{r.event_id}）で、"
        )
        if r.used_alternative:
            return text + "失敗した応答が示した候補を使っている。"
        text += f"違いは{changes(r.argument_changes[:3])}である。"
        return text + (f"新しい値は {code(r.source_tool)} の応答にある。" if r.source_tool else "")

    def _retry_with_values(self, r: RepairedCall) -> str:
        old = [f"{c.name}={c.before}" for c in r.argument_changes if c.before]
        new = [f"{c.name}={c.after}" for c in r.argument_changes if c.after]
        dropped = [c.name for c in r.argument_changes if not c.after]
        tool = code(r.tool) if r.tool else "呼び出し"
        times = f"{r.failure_count}回" if r.failure_count > 1 else ""
        without = codes([c.name for c in r.argument_changes])
        first = f"{codes(old)} を指定して" if old else f"{without} なしで"
        then = ([f"{codes(new)} に変えた"] if new else []) + (
            [f"{codes(dropped)} を外した"] if dropped else []
        )
        via = f"{code(r.source_tool)} の応答にある値の " if r.source_tool and new else ""
        return f"{tool} は {first}{times}{_failed(r, '失敗した', '結果が得られなかった')}（{r.failed_event_id}）{cause(r.message)}{via}{'、'.join(then)}呼び出し（{r.event_id}）ではエラーが検出されなかった。"

    def retry_with_wrong_arguments(self, r: RepairedCall) -> str:
        return f"その前の {code(r.tool)}（{r.failed_event_id}）は{_failed(r, '失敗していた', '結果が得られなかった')}{cause(r.message)}{r.event_id} での違いは{changes(r.argument_changes[:3])}である。"

    def contrast(self, c: AttemptContrast) -> str:
        other = "失敗した" if c.this_succeeded else "成功した"
        latest = f"直近の{other}試行"
        if c.other_answer and not c.calls_only_in_this and not c.calls_only_in_other:
            return f"{latest}はほかの呼び出しを行わず、回答は{quote(c.other_answer)}"
        if c.differing_arguments:
            where = f"（この実行では {c.event_id}）" if c.event_id else ""
            return f"{latest}は {code(c.compared_tool or '')} の引数が異なる{where}：{listed([differs(x) for x in c.differing_arguments[:2]])}。"
        if not c.this_succeeded:
            if c.calls_only_in_other:
                return f"{latest}は {codes(c.calls_only_in_other[:2])} を呼び出したが、この実行では呼び出していない。"
            return f"{latest}は {codes(c.calls_only_in_this[:2])} を呼び出していない。"
        if c.calls_only_in_this:
            who = latest if c.other_attempt_count == 1 else "比較した失敗した試行はどれも、"
            where = f"（この実行では {c.event_id}）" if c.event_id else ""
            text = f"{who}{'は ' if c.other_attempt_count == 1 else ''}{codes(c.calls_only_in_this[:2])}{where}を呼び出していない。"
            return text + (
                f"{latest}は {codes(c.calls_only_in_other[:2])} を呼び出した。"
                if c.calls_only_in_other
                else ""
            )
        return f"{latest}は {codes(c.calls_only_in_other[:2])} も呼び出した。"

    def identical_attempts(self, a: RepeatedAttempt, won: bool, lesson: bool) -> str:
        text = (
            f"以前の{a.earlier_count}回の試行は、呼び出しとその順序、結果がこの実行と同じである。"
        )
        return text + (
            "この実行では保存済みの教訓がエージェントに示されていた。" if lesson and not won else ""
        )

    def hops(self, hops: Sequence[LookupHop]) -> str:
        first = hops[0]
        text = f"{code(first.source_call)} の応答に質問にはない「{first.name}」があり、エージェントは次に {code(first.call)}（{first.event_id}）を呼び出した。"
        return text + (f"「{hops[1].name}」も同様に見つけて検索した。" if len(hops) > 1 else "")

    def path(self, f: Findings) -> str:
        if f.call_count == 1:
            text = f"呼び出しは {code(f.last_call or '')} の1回である。"
        else:
            way = " → ".join(tool if n == 1 else f"{tool} ×{n}" for tool, n in f.tool_sequence)
            rest = " → …" if sum(n for _, n in f.tool_sequence) < f.call_count else ""
            text = f"呼び出しは{f.call_count}回：{way}{rest}。"
        return text

    def origin(self, o: ArgumentOrigin) -> str:
        tools = list(dict.fromkeys(tool for _, _, tool in o.from_tools))[:2]
        parts = [
            f"{codes([n for n, _, t in o.from_tools if t == tool])} は {code(tool)} の応答"
            for tool in tools
        ]
        said = [n for n, _ in o.from_user if n not in dict(o.reused_arguments)]
        if said:
            parts.append(f"{codes(said[:4])} はユーザーの発言")
        if o.reused_arguments:
            parts.append(f"{codes([n for n, _ in o.reused_arguments])} は以前の呼び出し")
        text = f"{code(o.call)}（{o.event_id}）の値の出典：{listed(parts)}。" if parts else ""
        if not text and o.is_write:
            text = f"データを変更する最後の呼び出しは {code(o.call)}（{o.event_id}）である。"
        return text + (
            f"直前のユーザーの発言は同意の語句で始まる：{quote(o.user_confirmation)}"
            if o.user_confirmation
            else ""
        )

    def slow(self, s: SlowestCall) -> str:
        return f"最も時間がかかった呼び出しは {code(s.call)}（{s.event_id}）の {s.seconds:.3g} 秒で、計測時間の {round(100 * s.time_share)}% を占める。"

    def dialogue(self, d: Dialogue) -> str:
        parts: list[str] = []
        for phrase, n, event_id in d.repeated_phrases:
            parts.append(f"「{phrase}」は{n}回の返答に現れる（最初は {event_id}）。")
        if d.dissatisfied_message:
            parts.append(
                f"ユーザーの発言（{d.dissatisfied_event_id}）：{quote(d.dissatisfied_message)}"
            )
            if d.reply_before_dissatisfaction:
                parts.append(
                    f"その前の返答（{d.reply_before_dissatisfaction_event_id}）：{quote(d.reply_before_dissatisfaction)}"
                )
        if parts and d.ratings:
            parts.append(f"評価：{listed([f'{n} {v:g}' for n, v in d.ratings])}。")
        return "".join(parts)

    def reported_error(self, message: str, event: str | None) -> str:
        text = f"実行全体のエラーとして報告された内容：{quote(message)}"
        return text + (f"トレースの最後のイベントは {event} である。" if event else "")


def _failed(r: RepairedCall, reported: str, worded: str) -> str:
    """Only a report of the tool shows a failure."""
    return reported if r.is_reported else worded

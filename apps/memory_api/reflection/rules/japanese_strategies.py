"""Strategies in Japanese."""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory_api.reflection.rules.japanese_phrases import code, codes, quoted
from memory_api.reflection.rules.japanese_structure import DIVERGENCE_STRATEGIES
from memory_api.reflection.rules.language import (
    argument_names,
    source_entries,
    tool_entries,
    tool_of,
    without_values,
)
from memory_api.text.advice import append_tool_list
from memory_api.text.quotations import is_safe_name, safe_quotations
from memory_api.trace_analysis.arguments import QUOTES_CHANGE, WHITESPACE_CHANGE, is_named
from memory_api.trace_analysis.findings import (
    AttemptContrast,
    Crash,
    FailedAssertion,
    FailedCall,
    FailureStreak,
    FinalAnswer,
    LookupHop,
    MissingOutput,
    RepairedCall,
    RepeatedAttempt,
    RepeatedCall,
    UnconfirmedChange,
)
from memory_api.trace_analysis.ground_truth import ActionDeviation
from memory_api.trace_analysis.structure import DivergenceKind

_OBSERVED = "該当したツール"
_MISSING = "呼ばれなかったツール"
_NOT_FOUND = "検索結果がないときは、語の言い換えだけを繰り返さない。一覧か短い検索語で正確な名称を確認し、2回続けて見つからなければタスクの別の情報から調べる。"
_OTHER_CONDITION = "すべての条件に合う候補がないときは、変更できる条件をユーザーに確認し、その条件だけを変更または削除して再検索する。"
_BY_KIND = {
    "timeout": "呼び出しがタイムアウトしたときは、同じまま再実行せず、対象を絞るか分割する。または、何を待っているのかを先に調べる。",
    "rate_limit": "リクエストが多すぎて拒否されたときは、待ってから回数を減らして送る。",
    "permission": "権限不足で拒否されたときは、引数を変えて再試行せず、先に権限を申請する。",
    "network": "サーバーに接続できないときは、宛先を確認し、待ってから回数を決めて再試行する。",
    "syntax": "構文エラーが返ったときは、括弧の対応を確認し、先頭行と末尾行を含むブロック全体を再送する。",
    "shortage": "金額の不一致で拒否されたときは、ツールが返した合計から内訳を再計算する。",
    "missing": "呼び出しの対象が存在しないときは、一覧で正確な名称を確認してから再度呼び出す。",
    "unavailable": _OTHER_CONDITION,
    "invalid": "入力が拒否されたときは、エラーメッセージが示す形式と各引数を比べ、不正な引数だけを直す。",
    "parse": "モデルの出力をコードや引数として解析するときは、解析エラーを捕捉し、その内容をモデルに示して1回だけ再試行する。",
    "model": "テキストがモデルの入力上限を超えたときは、必要な部分だけに縮めてから再実行する。",
}


class JapaneseStrategies:
    """Implements `StrategyLanguage`.

    A strategy that holds for any tool names the tools in a list at its end, so the same strategy
    for another tool has the same sentence.
    """

    def after_divergence(self, kind: DivergenceKind) -> str | None:
        return DIVERGENCE_STRATEGIES.get(kind)

    def drop_quotes(self, tool: str) -> str:
        rule = "引用符付きの名称が見つからないときは、語を変える前に引用符を外して再検索する。"
        return append_tool_list(rule, _OBSERVED, tool_entries(tool))

    def use_suggestion(self, tool: str, offered: Sequence[str]) -> str:
        shown = safe_quotations(offered[:2])
        example = f"（この実行では {quoted(shown)}）" if shown else ""
        rule = f"検索結果がなく類似の候補が示されたときは、語を言い換えず、最も近い候補{example}を表記どおりに開く。"
        return append_tool_list(rule, _OBSERVED, tool_entries(tool))

    def stop_rephrasing(self, s: FailureStreak) -> str:
        return append_tool_list(_NOT_FOUND, _OBSERVED, tool_entries(s.tool))

    def convert(self, c: Crash) -> str:
        return f"{code(c.expected_type or '')} 型が必要な箇所に {code(c.actual_type or '')} 型の値を渡す前に、型を変換する。"

    def avoid_error(self, kind: str, what: str, message: str, repeated: bool) -> str | None:
        rule = _BY_KIND.get(kind)
        if rule is None:
            if not repeated:
                return None
            rule = f"{_when_failing(message)}失敗したときは、引数または使用するツールを見直す。"
        return append_tool_list(rule, _OBSERVED, tool_entries(tool_of(what)))

    def exact_form(self, a: FinalAnswer) -> str:
        return "完全一致で採点されるときは、出典に書かれた名称や語句だけを答える。"

    def weigh_candidates(self, a: FinalAnswer) -> str:
        return "応答に複数の候補があるときは、質問のすべての条件を候補ごとに確認してから答える。"

    def search_name(self, a: FinalAnswer) -> str:
        return f"質問に含まれる名称（この実行では {quoted(a.unsearched_names)}）をまだ検索していないときは、答える前に検索する。"

    def read_first(self, a: FinalAnswer) -> str:
        return "答える予定の語がどの応答にもないときは、その名称で検索し、出典を読んでから答える。"

    def derive_arguments(self, d: ActionDeviation) -> str:
        rule = "呼び出しの前に、各引数を依頼・規則・以前の応答から取得する。誤った値でもエラーが返らないことがある。"
        return append_tool_list(rule, "誤りがあった引数", {d.tool: argument_names(d.changes)})

    def check_before_change(self, d: ActionDeviation) -> str:
        rule = "依頼にも規則にもない呼び出しの前に、それが必要かどうかを確認する。"
        return append_tool_list(rule, "失敗した実行で呼ばれたツール", tool_entries(d.tool))

    def before_declining(self, d: ActionDeviation) -> str:
        rule = "依頼を断る前に、規則の範囲で一部だけ、または別の方法で対応できないか確認する。"
        return append_tool_list(rule, _MISSING, tool_entries(d.tool))

    def all_parts(self, d: Sequence[ActionDeviation]) -> str:
        rule = "依頼に複数の項目があるときは、先に一覧にし、すべての呼び出しが済むまで終了しない。"
        return append_tool_list(rule, _MISSING, tool_entries(*(x.tool for x in d[:3])))

    def state_figure(self, u: MissingOutput) -> str:
        return (
            "金額や件数を聞かれたときは、対象をすべて含めて計算し、その数値を伝えてから終了する。"
        )

    def follow_success(self, c: AttemptContrast) -> str | None:
        if c.differing_arguments and c.compared_tool:
            names = list(dict.fromkeys(x.name for x in c.differing_arguments[:3] if is_named(x)))
            which = codes(names) if names else "引数"
            return f"{code(c.compared_tool)} を呼ぶ前に、{which} の値を以前の応答またはユーザーの発言から取得する。このタスクの成功した試行と失敗した試行では、この引数が異なる。"
        used = c.tools_only_in_this if c.this_succeeded else c.tools_only_in_other
        if used:
            return f"このタスクに取り組むときは、{codes(used)} を呼び出す。このタスクの成功した試行だけが使っていた。"
        good, bad = (
            (c.calls_only_in_this, c.calls_only_in_other)
            if c.this_succeeded
            else (c.calls_only_in_other, c.calls_only_in_this)
        )
        if not good or not bad or "[" not in good[0]:
            return None
        return f"このタスクに取り組むときは、{code(bad[0])} の代わりに {code(good[0])} を呼び出す。このタスクの成功した試行と失敗した試行では、この呼び出しが異なる。"

    def change_arguments(self, r: RepairedCall) -> str | None:
        if r.used_alternative:
            return self.use_suggestion(r.tool, ())
        if any(
            c.name == QUOTES_CHANGE and (c.after or "")[:1] in "\"'" for c in r.argument_changes
        ):
            rule = "引用符のない引数が拒否されたときは、語を変える前に引数全体を引用符で囲む。"
            return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))
        if any(c.name == QUOTES_CHANGE for c in r.argument_changes):
            return self.drop_quotes(r.tool)
        if any(c.name == WHITESPACE_CHANGE for c in r.argument_changes):
            rule = "複数行のテキストが拒否されたときは、語を変える前に、前後の行とインデントを揃えて再送する。"
            return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))
        if r.source_tool and r.sourced_argument:
            return self._copied(r.tool, {r.sourced_argument: r.source_tool})
        if any(is_named(c) for c in r.argument_changes):
            return self._changed(r)
        only = r.argument_changes[0] if len(r.argument_changes) == 1 else None
        if only and only.before and not only.after:
            rule = f"語を付け加えた名称（この実行では「{only.before}」）が見つからないときは、付け加えた語を外して再検索する。"
            return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))
        return self.avoid_error(r.kind, r.tool, r.message, False)

    def _changed(self, r: RepairedCall) -> str:
        """Named arguments changed, and the next call returned no detected error."""
        names = {r.tool: argument_names(r.argument_changes)}
        if all(c.before is None for c in r.argument_changes):
            rule = f"{_when_failing(r.message)}失敗したときは、不足している引数がないか確認し、その引数だけを加える。"
            return append_tool_list(rule, "追加した引数", names)
        if r.kind == "unavailable":
            removed = all(c.after is None for c in r.argument_changes)
            label = "削除した条件" if removed else "変更した条件"
            return append_tool_list(_OTHER_CONDITION, label, names)
        rule = f"{_when_failing(r.message)}失敗したときは、メッセージが示す引数だけを変え、ほかは変えない。"
        return append_tool_list(rule, "変更した引数", names)

    def look_up_value(self, f: FailedCall) -> str:
        rule = "IDや名称が必要な呼び出しの前に、値を以前の応答から取得するか、先に検索する。値は自分で作らない。"
        names = [x.split("=", 1)[0] for x in f.ungrounded_arguments]
        names = [name for name in names if is_safe_name(name)]
        return append_tool_list(rule, "出典のなかった引数", {f.tool: names})

    def start_differently(self, a: RepeatedAttempt) -> str:
        return f"同じタスクの以前の試行が失敗しているときは、まったく同じ呼び出し（この実行では最初に {code(a.first_call)}）を繰り返さない。少なくとも1つを変える。"

    def no_repeat(self, r: RepeatedCall) -> str:
        rule = "呼び出しが失敗したときは、同じ内容で再送しない。引数かツールを変える。"
        return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))

    def ask_first(self, u: UnconfirmedChange) -> str:
        rule = "規則が同意を求めるときは、呼び出しの内容を示し、明確な同意を得てから呼び出す。"
        return append_tool_list(rule, "同意の語句がなかった呼び出し", tool_entries(u.tool))

    def follow_name(self, hops: Sequence[LookupHop]) -> str:
        return "質問が名称を示さずに説明しているときは、その名称を含むページを見つけ、次にその名称で検索する。"

    def _copied(self, tool: str, source: Mapping[str, str]) -> str:
        call = f"{code(tool)} を呼ぶ前に" if tool else "呼び出しの前に"
        rule = f"{call}、以前の呼び出しの応答から正確な引数の値を取得する。"
        return append_tool_list(rule, "値の取得元", source_entries(source))

    def run_failing_test(self, a: FailedAssertion) -> str:
        name = code(a.test.split("::")[-1]) if a.test else "失敗しているテスト"
        return f"{name} が対象とするコードの変更を終える前に、このテストを実行して成功させる。"

    def vary_phrases(self) -> str:
        return "1つの会話で何度も返答するときは、同じ言い回しを繰り返さない。"

    def resolve_failed_code(self) -> str:
        return "コードが失敗したとき、または何も出力しないときは、仮の値で続けない。先にコードを直すか、別の情報源を使う。"

    def verify_answer(self) -> str:
        return (
            "どの出力にも含まれない最終回答を出す前に、計算または検索で値を求め、回答と照合する。"
        )

    def change_repeated_step(self) -> str:
        return "同じ手順を2回行っても新しい結果が得られないときは、別の手順に変える。"


def _when_failing(message: str) -> str:
    quotation = without_values(message)
    return f"呼び出しが「{quotation}」で" if quotation else "呼び出しが"

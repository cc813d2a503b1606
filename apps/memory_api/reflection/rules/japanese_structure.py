"""Sentences in Japanese about agents, outputs and where values come from."""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from apps.memory_api.reflection.rules.japanese_phrases import code, codes, listed, quote, quoted
from apps.memory_api.trace_analysis.structure import (
    AgentTeam,
    AnswerOrigin,
    OmittedConstraint,
    RepeatedMessage,
    RepeatedResult,
    TruncatedOutput,
    UnresolvedOutput,
    UnsupportedStatement,
    UnusedResult,
)


class JapaneseStructure:
    """The structural part of `JapaneseNarrative`."""

    def team(self, t: AgentTeam) -> str:
        agents = listed([f"{name}（{n}回）" for name, n in t.agents[:6]])
        more = f" ほか{len(t.agents) - 6}" if len(t.agents) > 6 else ""
        return f"エージェントとその発言数：{agents}{more}。最後の発言は {t.last_agent}（{t.last_event_id}）である。"

    def answer_origin(self, a: AnswerOrigin) -> str:
        what = f"最終回答（{a.answer_event_id}）の{quoted([a.value])}"
        if a.kind == "output":
            return f"{what}は、{a.author}（{a.author_event_id}）の後の出力 {a.first_event_id} に最初に現れる。"
        if a.kind == "report":
            return f"{what}は、{a.author} が報告したページまたはファイル（{a.author_event_id}）に最初に現れる。"
        first = f"{what}は、{a.author} の発言（{a.author_event_id}）に最初に現れる。"
        if a.author_event_id == a.answer_event_id:
            first = f"{what}は、それより前のどのイベントにも現れない。"
        if a.output_event_id:
            return f"{first}出力 {a.output_event_id} にも含まれる。"
        return f"{first}出力にも、報告されたページやファイルにも含まれない。"

    def unsupported(self, u: UnsupportedStatement) -> str:
        return f"{u.agent} の発言（{u.event_id}）にある{quoted(u.values)}は、それより前のどのイベントにも現れない。"

    def unresolved(self, u: UnresolvedOutput) -> str:
        result = f"終了コード {u.exit_code} で終わった" if u.exit_code else "何も出力しなかった"
        text = f"{u.agent} のコード（{u.event_id}）は{result}（{u.output_event_id}）。その後、エラーのない出力を返したコードはない。"
        return text + (
            f"{u.next_agent} はコードなしで続けた（{u.next_event_id}）。" if u.next_event_id else ""
        )

    def omitted(self, o: OmittedConstraint) -> str:
        return f"タスクにある{quoted(o.values)}は、その後のどの発言にも現れない。"

    def repeated_message(self, m: RepeatedMessage) -> str:
        more = " ほか" if m.count > len(m.event_ids[:3]) else ""
        return f"{m.agent} の{m.count}回の発言は書き出しが同じである（{listed(m.event_ids[:3])}{more}）：{quote(m.quote)}"

    def repeated_result(self, r: RepeatedResult) -> str:
        more = " ほか" if r.count > len(r.event_ids[:3]) else ""
        return f"{r.count}回の呼び出しの応答が同じ内容だった（{listed(r.event_ids[:3])}{more}）：{codes(r.calls)}。"

    def unused(self, u: UnusedResult) -> str:
        return f"{code(u.call)}（{u.event_id}）の応答にある数値と、大文字で始まる名称は、その後のどのイベントにも現れない。"

    def truncated(self, t: TruncatedOutput) -> str:
        return f"{code(t.call)}（{t.event_id}）の応答には次の記載がある：{quote(t.quote)}"

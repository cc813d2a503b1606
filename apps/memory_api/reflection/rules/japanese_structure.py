"""Sentences in Japanese about agents, outputs and where values come from."""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from memory_api.reflection.rules.japanese_phrases import code, codes, listed, quote, quoted
from memory_api.trace_analysis.structure import (
    AgentTeam,
    AnswerOrigin,
    Divergence,
    DivergenceKind,
    OmittedConstraint,
    RepeatedMessage,
    RepeatedResult,
    TruncatedOutput,
    UnresolvedOutput,
    UnsupportedStatement,
    UnusedResult,
)

_DIVERGENCES: dict[DivergenceKind, str] = {
    "misread": "{who}は{stated}と述べている。{d.source_event_id} の表では、そのセルの値は{found}である。",
    "stale_file": "{who}はファイル{stated}を挙げているが、後から現れた{found}（{d.source_event_id}）を挙げていない。",
    "altered_number": "{who}の{stated}は、それより前のどのイベントにも現れない。{d.source_event_id} には{found}とある。",
    "altered_unit": "{who}は{stated}と述べている。{d.source_event_id} には{found}とある。",
    "substituted": "{who}には、それより前のどのイベントにも現れない{stated}があり、タスクの{found}がない。",
    "from_statement": "{who}の次の値は、それより前のどのイベントにも現れず、{d.source_event_id} で使われている：{stated}。",
    "without_call": "{who}は、呼び出しを行わずに、それより前のどのイベントにも現れない値を述べている：{stated}。",
    "partial_view": "出力 {d.source_event_id} には{found}とある。それより後の部分を示す出力はない。",
    "unopened": "{who}は、{stated}（{d.source_event_id} の一覧）についての依頼に答えている。これを指定した呼び出しはない。",
    "unread_files": "出力 {d.source_event_id} には同じ種類のファイルが{d.found}個ある。その後の呼び出しが指定したのは{d.stated}個である。",
    "typed_in": "{who}のプログラムは以前のイベントの値を含み、ファイルを指定していない。{found}を指定した以前のプログラム（{d.source_event_id}）は失敗した。",
    "passed_over": "正解の{found}は {d.source_event_id} に現れる。{who}は{stated}と述べている。",
    "ignored_objection": "{d.source_event_id} の発言：{quote} その後、{who}は{stated}を繰り返している。",
    "stalled_call": "{d.agent} の {d.event_id} から {d.source_event_id} までに、同じ呼び出しが3回以上ある：{stated}。",
    "stalled_output": "{d.agent} の {d.event_id} から {d.source_event_id} までに、出力の書き出しが同じ呼び出しが3回以上ある：{found}。",
}

DIVERGENCE_STRATEGIES: dict[DivergenceKind, str] = {
    "misread": "表の値を報告する前に、行の見出しと列の見出しの両方で値を確認すること。",
    "stale_file": "ファイルを引き渡す前に、その名前を、他のステップが報告した最新版と照合すること。",
    "altered_number": "数値を引き渡すときは、その数値を含むイベントからそのまま写すこと。",
    "altered_unit": "測定値を報告するときは、単位を情報源からそのまま写し、換算は別のステップで行うこと。",
    "substituted": "呼び出しやプログラムの前に、その年や限度値をタスクと照合すること。",
    "from_statement": "他のエージェントが出典なしに述べた値を使う前に、その値を調べること。",
    "without_call": "他のエージェントが使う事実を述べる前に、ツールで調べること。",
    "partial_view": "出力が一部だけを示しているときは、数えたり要約したりする前に残りの部分を読むこと。",
    "unopened": "情報源の確認を頼まれたときは、それを開いてから答えること。",
    "unread_files": "複数のファイルについて報告する前に、開いたファイルを一覧と照合すること。",
    "typed_in": "ファイルを開けないときは、別の方法で読み、プレビューの行を手で入力しないこと。",
    "ignored_objection": "他のエージェントが値に異議を述べたときは、報告する前にその値を確認すること。",
    "stalled_call": "同じ呼び出しを2回送っても新しい結果がないときは、別の手順を取ること。",
    "stalled_output": "複数の呼び出しで新しい結果が得られないときは、別の情報源またはツールを使うこと。",
}


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

    def divergence(self, d: Divergence) -> str:
        who = f"{d.agent}（{d.event_id}）"
        stated, found = quoted([d.stated]), quoted([d.found])
        template = _DIVERGENCES[d.kind]
        return template.format(d=d, who=who, stated=stated, found=found, quote=quote(d.found))

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
